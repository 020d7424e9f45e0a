"""Recording and replaying attention inside a process, with real tensors on a CPU and a float64 stand-in for SGLang."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from app.engine.sglang.outputs import difference
from app.engine.sglang.plugin import decode_ab_replay as plugin
from kernels.cases import Case, make_inputs
from kernels.reference import attend
from tests.app.engine.sglang.of_release import load_of_release

ARGUMENTS = {"extra_indices": "extra_indices_in_kvcache"}
PLAIN = Case(batch=6, heads=2, page=64, pool=128, sink="normal")
LAYERS = (PLAIN, replace(PLAIN, extra=64, lengths="ragged"))


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Threads that wait for each other cost more than these tensors."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@cache
def call(case: Case) -> Mapping[str, Any]:
    """A call as SGLang makes it."""
    found = {ARGUMENTS.get(k, k): v for k, v in make_inputs(case).arguments().items()}
    return found | {"head_dim_v": 512, "softmax_scale": 0.05}


def float64(arguments: Mapping[str, Any]) -> torch.Tensor:
    back = {v: k for k, v in ARGUMENTS.items()}
    return attend(**{back.get(k, k): v for k, v in arguments.items() if k != "head_dim_v"})[0]


@dataclass
class Server:
    """The modules that the plugin reaches for. seen: decode steps whether by graph; path: which attention answered."""

    replay: plugin.Replay
    card: bool
    seen: list[bool] = field(default_factory=list)
    answered: list[str] = field(default_factory=list)

    def attention(self, name: str) -> Any:
        def attend_here(**arguments: Any) -> tuple[torch.Tensor, None]:
            self.answered.append(name)
            known = {k: v for k, v in arguments.items() if k not in ("block_table", "cache_seqlens", *CARD_ONLY)}
            return float64(known), None

        return attend_here

    def step(self, batch_size: int = 6, decode: bool = True) -> None:
        backend, runner = sys.modules[plugin.BACKEND], sys.modules[plugin.RUNNER]
        batch = SimpleNamespace(forward_mode=SimpleNamespace(is_decode=lambda: decode), batch_size=batch_size)
        graph = decode and runner.DecodeCudaGraphRunner().can_run_graph(batch)
        self.seen.append(graph)
        for number in () if graph else range(len(LAYERS)):
            layer = SimpleNamespace(layer_id=number)
            backend.DeepseekV4AttnBackend().forward(None, None, None, layer, batch)

    def ask(self, what: str, folder: Path, steps: int = 4) -> Any:
        request = SimpleNamespace(profile_id=what, output_dir=str(folder), num_steps=steps)
        return self.replay.asked(lambda *_: "a profile", "the manager", request)


CARD_ONLY = ("tile_scheduler_metadata", "is_fp8_kvcache")


def make_server(monkeypatch: pytest.MonkeyPatch, path: str, sm120: bool) -> Server:
    server = Server(plugin.Replay(path), card=path == "own" and not sm120)
    place, name = plugin.CARD if server.card else plugin.SM_120

    class Backend:
        def forward(self, q: Any, k: Any, v: Any, layer: Any, forward_batch: Any) -> Any:
            return getattr(sys.modules[place], name)(**call(LAYERS[layer.layer_id]))

    class Runner:
        def can_run_graph(self, batch: Any) -> bool:
            return True

    modules: dict[str, dict[str, Any]] = {
        plugin.BACKEND: {"DeepseekV4AttnBackend": Backend, "_is_sm120": sm120},
        plugin.RUNNER: {"DecodeCudaGraphRunner": Runner},
        plugin.MESSAGES: {"ProfileReqOutput": SimpleNamespace},
        plugin.SM_120[0]: {plugin.SM_120[1]: server.attention("sm_120")},
        plugin.CARD[0]: {plugin.CARD[1]: server.attention("card"), "get_mla_metadata": lambda: ("schedule", None)},
    }
    for place_, names in modules.items():
        made = ModuleType(place_)
        vars(made).update(names)
        monkeypatch.setitem(sys.modules, place_, made)
    return server


@pytest.fixture(params=[("decode", False, "sm_120"), ("own", False, "card"), ("own", True, "sm_120")])
def taken(request: pytest.FixtureRequest) -> tuple[str, bool, str]:
    found: tuple[str, bool, str] = request.param
    return found


def test_a_step_is_recorded_and_attended_to_anew_on_the_path_that_decode_takes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, taken: tuple[str, bool, str]
) -> None:
    path, sm120, answers = taken
    server = make_server(monkeypatch, path, sm120)
    server.ask(plugin.RECORD, tmp_path)
    for _ in range(3):
        server.step()
    assert server.seen == [False, False, True]
    server.answered.clear()
    server.ask(plugin.REPLAY, tmp_path)
    assert server.answered == [answers] * 4
    told = json.loads((tmp_path / f"{plugin.REPLAY}.json").read_text())
    with np.load(tmp_path / f"outputs-{told['pid']}.npz") as held:
        for case in LAYERS:
            expected = float64(call(case))[:4].float().numpy()
            assert np.array_equal(held[f"64+{case.extra}/first"], expected)


def test_only_a_decode_batch_that_is_large_enough_is_recorded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    server = make_server(monkeypatch, "decode", False)
    server.ask(plugin.RECORD, tmp_path, steps=6)
    server.step(batch_size=5)
    server.step(decode=False)
    server.step()
    assert not (tmp_path / plugin.INPUTS).exists()
    server.step()
    assert (tmp_path / plugin.INPUTS).is_file()


def test_a_server_that_is_released_uses_its_graphs_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    server = make_server(monkeypatch, "decode", False)
    for what in (plugin.RECORD, plugin.RELEASE):
        server.ask(what, tmp_path)
    server.step()
    assert server.seen == [True]


def test_graphs_are_left_out_until_the_release(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    server = make_server(monkeypatch, "decode", False)
    server.ask(plugin.EAGER, tmp_path)
    server.step()
    server.ask(plugin.RELEASE, tmp_path)
    server.step()
    assert server.seen == [False, True]
    assert json.loads((tmp_path / f"{plugin.EAGER}.json").read_text())["graphs"] is False
    assert not (tmp_path / plugin.INPUTS).exists()


def test_only_named_pages_are_kept_and_what_is_not_valid_is_named_no_more() -> None:
    case = Case(batch=2, heads=4, topk=64, pool=1024, page=64, lengths="short", holes="random")
    arguments = call(case)
    kept = plugin.kept(arguments, 1)
    assert kept["k_cache"]["shape"][0] < arguments["k_cache"].shape[0]
    valid = int(((arguments["indices"][0] >= 0).flatten() & (torch.arange(64) < arguments["topk_length"][0])).sum())
    assert int((kept["indices"] >= 0).sum()) == valid


@pytest.mark.parametrize("case", [*LAYERS, replace(PLAIN, heads=16, lengths="ragged", holes="trail")], ids=str)
def test_the_releases_own_attention_says_the_same_of_kept_inputs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, case: Case
) -> None:
    attention = releases_attention(monkeypatch, tmp_path)
    kept = plugin.restored(plugin.kept(call(case), 4), "cpu")
    found = attention(**kept)[0]
    assert torch.equal(found, attention(**call(case))[0][:4])
    assert difference({"a": found.float().numpy()}, {"a": float64(kept).float().numpy()}).within


def releases_attention(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Any:
    """sm_120's attention as 0.5.17 has it, in its form without a kernel."""
    selector = SimpleNamespace(SGLANG_SM120_FLASHMLA_BACKEND=SimpleNamespace(get=lambda: "torch"))
    imported: dict[str, dict[str, Any]] = {"environ": {"envs": selector}, "utils": {"is_hip": lambda: False}}
    file = plugin.SM_120[0].replace(".", "/") + ".py"
    return getattr(load_of_release(file, imported, folder, monkeypatch), plugin.SM_120[1])


def test_heads_that_nothing_was_written_to_are_no_queries() -> None:
    arguments = dict(call(PLAIN))
    arguments["q"] = arguments["q"].clone()
    arguments["q"][0, 0, 1, 7], arguments["q"][2, 0, 0, 3] = torch.nan, 3e30
    zero = [
        (row, head) for row in range(3) for head in range(2) if not plugin.kept(arguments, 3)["q"][row, 0, head].any()
    ]
    assert zero == [(0, 1), (2, 0)]


def test_a_replay_that_fails_is_told_and_ends_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    answer = make_server(monkeypatch, "decode", False).ask(plugin.REPLAY, tmp_path)
    assert answer.success
    assert "FileNotFoundError" in json.loads((tmp_path / f"{plugin.REPLAY}.json").read_text())["error"]


def test_a_call_of_another_form_is_told_and_ends_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    server = make_server(monkeypatch, "decode", False)
    monkeypatch.setattr(plugin, "CACHES", (("k_cache", "named_otherwise", "topk_length"),))
    server.ask(plugin.RECORD, tmp_path)
    server.step()
    server.step()
    assert server.seen == [False, True]
    assert "KeyError: 'named_otherwise'" in json.loads((tmp_path / f"{plugin.RECORD}.json").read_text())["error"]
    assert not (tmp_path / plugin.INPUTS).exists()


def test_inputs_too_large_to_keep_are_told_and_not_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(plugin, "LARGEST_BYTES", 1000)
    server = make_server(monkeypatch, "decode", False)
    server.ask(plugin.RECORD, tmp_path)
    server.step()
    server.step()
    assert "1000 is the most" in json.loads((tmp_path / f"{plugin.RECORD}.json").read_text())["error"]
    assert not (tmp_path / plugin.INPUTS).exists()


def test_a_profile_that_is_not_ours_goes_to_sglang(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert make_server(monkeypatch, "decode", False).ask("1790857026.5", tmp_path) == "a profile"


@pytest.mark.parametrize(("ranks", "one_of", "own"), [(1, 1, 64), (4, 1, 16), (1, 4, 16)])
def test_heads_are_shared_among_the_ranks_that_run_and_those_of_which_one_is_alone(
    monkeypatch: pytest.MonkeyPatch, ranks: int, one_of: int, own: int
) -> None:
    model = SimpleNamespace(from_server_args=lambda _: SimpleNamespace(num_attention_heads=64))
    context = ModuleType("sglang.srt.runtime_context")
    vars(context).update(get_parallel=lambda: SimpleNamespace(attn_tp_size=ranks), get_server_args=lambda: None)
    monkeypatch.setitem(sys.modules, context.__name__, context)
    monkeypatch.setitem(sys.modules, "sglang.srt.configs.model_config", SimpleNamespace(ModelConfig=model))
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    assert plugin.own_heads(64, one_of) == own
