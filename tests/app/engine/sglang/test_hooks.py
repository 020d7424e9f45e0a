"""The hooks inside SGLang's own plugin framework, as the pinned wheel has it, over stubs of what they hook into."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from app.engine.sglang.package import write_plugin
from app.kernel.upstream import default_cache, fetch_wheel, pinned
from tests.app.engine.sglang.standin import make_standin

# What of SGLang 0.5.17 the hooks reach for: module, then names in it.
REACHED = {
    "sglang/srt/layers/attention/deepseek_v4_backend.py": ("_is_sm120", "DeepseekV4AttnBackend"),
    "sglang/srt/layers/attention/dsv4/indexer.py": ("fp8_paged_mqa_logits_torch", "fp8_paged_mqa_logits_torch_sm120"),
    "sglang/srt/models/deepseek_v4.py": ("MqaAttentionBase",),
    "sglang/srt/model_loader/weight_utils.py": ("initialize_dummy_weights",),
    "sglang/kernels/ops/attention/flash_mla_sm120.py": ("_sm120_default_backend", "flash_mla_with_kvcache_sm120"),
    "sglang/srt/managers/scheduler_components/profiler_manager.py": ("SchedulerProfilerManager",),
    "sglang/srt/managers/io_struct.py": ("ProfileReqOutput",),
    "sglang/srt/model_executor/runner/decode_cuda_graph_runner.py": ("DecodeCudaGraphRunner",),
}
PROGRAM = """
from types import SimpleNamespace
from sglang.srt.plugins import load_plugins
load_plugins()
from sglang.srt.layers.attention import deepseek_v4_backend as backend
from sglang.srt.layers.attention.dsv4 import indexer
def tensor(*shape): return SimpleNamespace(shape=shape)
def forward(decode):
    batch = SimpleNamespace(forward_mode=SimpleNamespace(is_decode=lambda: decode))
    return backend.DeepseekV4AttnBackend().forward(tensor(8, 64, 512), tensor(8, 128), tensor(8, 512), None, batch)
print([forward(False), forward(True), forward(False)])
"""


def run(site: Path, plugin: Path, path: str, program: str = PROGRAM, **changes: Any) -> str:
    orders: dict[str, Any] = {"path": path, "dummy": False, "torch_indexer": False, "one_of": 1}
    orders["evidence"] = str(site.parent / "evidence")
    environment = {
        **os.environ,
        "PYTHONPATH": f"{plugin}:{site}",
        "SGLANG_PLUGINS": "decode_ab",
        "SGLANG_SM120_FLASHMLA_BACKEND": "triton",
        "DECODE_AB_ORDERS": json.dumps(orders | changes),
    }
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture
def site(tmp_path: Path) -> Path:
    make_standin(tmp_path / "site", sm120=False)
    return tmp_path / "site"


@pytest.fixture
def plugin(tmp_path: Path) -> Path:
    return write_plugin(tmp_path / "plugin")


@pytest.mark.parametrize(
    ("path", "taken"),
    [
        ("own", ["the card's own"] * 3),
        ("decode", ["the card's own", "sm_120's", "the card's own"]),
        ("all", ["sm_120's"] * 3),
    ],
)
def test_the_forced_path_is_taken_by_the_asked_calls_alone(
    site: Path, plugin: Path, path: str, taken: list[str]
) -> None:
    assert run(site, plugin, path) == str(taken)


def test_a_process_writes_down_what_it_imported_and_called(site: Path, plugin: Path, tmp_path: Path) -> None:
    run(site, plugin, "decode")
    (file,) = (tmp_path / "evidence").glob("*.json")
    told = json.loads(file.read_text())
    assert told["kernel_file"] == str(site / pinned().file)
    assert (told["kernel_sha256"], told["selector"]) == (pinned().file_sha256, "triton")
    heads = {"heads": 64, "own": 64, "launched": 64}
    assert told["calls"] == [{"batch": 8, "topk": 128, "extra_topk": 512, "capturing": False, **heads}]


def test_dummy_weights_are_the_labs_where_asked(site: Path, plugin: Path) -> None:
    program = """
from sglang.srt.plugins import load_plugins
load_plugins()
from sglang.srt.model_loader import loader
class Values:
    def __init__(self, *shape): self.shape, self.ndim, self.device, self.done = shape, len(shape), "cpu", ""
    def is_floating_point(self): return True
    def fill_(self, x): self.done = f"fill {x}"
    def uniform_(self, *a, **o): self.done = "small"
    def normal_(self, mean, spread, **o): self.done = f"normal {spread}"
state = {"a.norm.weight": Values(4), "embed.weight": Values(9, 4), "q.weight": Values(9, 16), "attn_sink": Values(4)}
class Model:
    def state_dict(self): return state
loader.initialize_dummy_weights(Model())
print([v.done for v in state.values()])
"""
    assert run(site, plugin, "own", program, dummy=True) == "['fill 1.0', 'normal 1.0', 'normal 0.25', 'small']"


LAYER = "from sglang.srt.models.deepseek_v4 import MqaAttentionBase\nprint(MqaAttentionBase('config', 3).told)\n"
LOADED = "from sglang.srt.plugins import load_plugins\nload_plugins()\n"


@pytest.mark.parametrize(("one_of", "told"), [(1, "('config', 3, None, None)"), (4, "('config', 3, 0, 4)")])
def test_each_layer_is_built_as_the_first_of_so_many_ranks_has_it(
    site: Path, plugin: Path, one_of: int, told: str
) -> None:
    assert run(site, plugin, "decode", LOADED + LAYER, one_of=one_of) == told


def test_heads_of_one_rank_are_not_told_where_no_layer_was_built_as_its(site: Path, plugin: Path) -> None:
    called = PROGRAM.partition("print")[0] + "forward(True)"
    program = called + "\nprint('told')"
    assert run(site, plugin, "decode", f"{LOADED}{LAYER}{program}", one_of=4).endswith("told")
    with pytest.raises(AssertionError, match="no layer was built as one of 4 ranks has it"):
        run(site, plugin, "decode", program, one_of=4)


def test_one_rank_is_not_built_where_several_run(site: Path, plugin: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STANDIN_RANKS", "2")
    with pytest.raises(AssertionError, match="2 ranks run where one of 4 is to be alone"):
        run(site, plugin, "decode", LOADED + LAYER, one_of=4)
    assert run(site, plugin, "decode", LOADED + LAYER).endswith("None, None)")


def test_a_kernel_that_asks_for_its_ranks_heads_hears_of_those_of_the_rank_that_is_alone(
    site: Path, plugin: Path
) -> None:
    with (site / pinned().file).open("a") as kernel:
        kernel.write("\n\ndef own_heads(launched): return launched\n")
    program = f"""{LOADED}{LAYER}
import decode_ab_replay
decode_ab_replay.own_heads = lambda given, one_of: given // one_of
from sglang.kernels.ops.attention import flash_mla_sm120_triton as kernel
print(kernel.own_heads(64))
"""
    assert run(site, plugin, "decode", program, one_of=4).endswith("16")
    assert run(site, plugin, "decode", program).endswith("64")


def test_sglang_builds_a_layer_by_the_names_that_the_hook_gives() -> None:
    with zipfile.ZipFile(fetch_wheel(pinned("0.5.17"), default_cache())) as wheel:
        tree = ast.parse(wheel.read("sglang/srt/models/deepseek_v4.py"))
    base = next(n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "MqaAttentionBase")
    build = next(n for n in base.body if isinstance(n, ast.FunctionDef) and n.name == "__init__")
    assert {"attn_tp_rank", "attn_tp_size"} <= {a.arg for a in build.args.kwonlyargs}
    inner = next(n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "MQALayer")
    given = [k.arg for c in ast.walk(inner) if isinstance(c, ast.Call) for k in c.keywords]
    # Its own call leaves them to SGLang, so that the hook may name them.
    assert not {"attn_tp_rank", "attn_tp_size"} & set(given)


def test_the_torch_indexer_takes_its_callers_lengths_where_asked(site: Path, plugin: Path) -> None:
    program = PROGRAM + "\nprint(indexer.fp8_paged_mqa_logits_torch('lengths'))"
    assert run(site, plugin, "decode", program, torch_indexer=True).endswith("sm_120's form")


def test_word_for_the_replay_comes_in_by_sglangs_profiler_and_profiles_stay_its_own(
    site: Path, plugin: Path, tmp_path: Path
) -> None:
    program = f"""
from types import SimpleNamespace
from sglang.srt.plugins import load_plugins
load_plugins()
from sglang.srt.managers.scheduler_components.profiler_manager import SchedulerProfilerManager
def ask(profile_id):
    asked = SimpleNamespace(profile_id=profile_id, output_dir={str(tmp_path / "asked")!r}, num_steps=1)
    return SchedulerProfilerManager()._profile(recv_req=asked)
print([ask("1790857026.5"), ask("decode-ab-replay").success])
"""
    assert run(site, plugin, "decode", program) == "['profiled 1790857026.5', True]"
    assert "FileNotFoundError" in json.loads((tmp_path / "asked" / "decode-ab-replay.json").read_text())["error"]


def test_every_name_that_the_hooks_reach_for_is_in_the_release() -> None:
    with zipfile.ZipFile(fetch_wheel(pinned("0.5.17"), default_cache())) as wheel:
        for path, names in REACHED.items():
            assert set(names) <= bound(ast.parse(wheel.read(path))), path


def test_forward_has_its_batch_where_the_hook_looks_for_it() -> None:
    with zipfile.ZipFile(fetch_wheel(pinned("0.5.17"), default_cache())) as wheel:
        tree = ast.parse(wheel.read("sglang/srt/layers/attention/deepseek_v4_backend.py"))
    backend = next(n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "DeepseekV4AttnBackend")
    forward = next(n for n in backend.body if isinstance(n, ast.FunctionDef) and n.name == "forward")
    names = [a.arg for a in forward.args.args]
    assert (names.index("layer"), names.index("forward_batch")) == (4, 5)


def bound(tree: ast.Module) -> set[str]:
    """Names of a module's own functions, classes and assignments."""
    names = {n.name for n in tree.body if isinstance(n, ast.FunctionDef | ast.ClassDef)}
    targets = [t for n in tree.body if isinstance(n, ast.Assign) for t in n.targets]
    return names | {t.id for t in targets if isinstance(t, ast.Name)}
