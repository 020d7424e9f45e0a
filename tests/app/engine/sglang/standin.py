"""A stand-in for an installed SGLang: its own plugin framework from the pinned wheel, stubs for what it hooks into.

Started, it calls attention once as a decode batch would, leaves a cache entry as Triton would, and then serves by the
simulated engine; no figure of it means anything.
"""

from __future__ import annotations

import json
import sys
import zipfile
from pathlib import Path

from app.engine.sglang.installation import Installation
from app.environment import ROOT
from app.kernel.upstream import default_cache, fetch_wheel, pinned

RELEASE = "0.5.17"
FROM_WHEEL = (
    "sglang/srt/plugins/__init__.py",
    "sglang/srt/plugins/hook_registry.py",
    "sglang/kernels/ops/attention/flash_mla_sm120_triton.py",
)
ANYTHING = """
import sys, types
class Anything(types.ModuleType):
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything(name)
    def __call__(self, *args, **options):
        return args[0] if len(args) == 1 and callable(args[0]) else Anything("called")
    def __bool__(self):
        return False
    def __getitem__(self, key):
        return Anything("item")
    __path__ = []
for name in ("torch", "triton", "triton.language"):
    sys.modules[name] = Anything(name)
"""
STUBS = {
    "sitecustomize.py": ANYTHING,
    "sglang/__init__.py": "",
    "sglang/srt/environ.py": """
import os
class Variable:
    def __init__(self, name): self.name = name
    def get(self): return os.environ.get(self.name, "")
class Variables:
    def __getattr__(self, name): return Variable(name)
envs = Variables()
""",
    "sglang/srt/layers/attention/deepseek_v4_backend.py": """
_is_sm120 = False
class DeepseekV4AttnBackend:
    def forward(self, q, k, v, layer, forward_batch, compress_ratio=0):
        if _is_sm120:
            from sglang.kernels.ops.attention.flash_mla_sm120 import flash_mla_with_kvcache_sm120
            return flash_mla_with_kvcache_sm120(q=q, indices=k, extra_indices_in_kvcache=v)
        return "the card's own"
""",
    "sglang/srt/layers/attention/dsv4/indexer.py": """
def fp8_paged_mqa_logits_torch(lengths): raise AssertionError("shape")
def fp8_paged_mqa_logits_torch_sm120(lengths): return "sm_120's form"
""",
    "sglang/srt/runtime_context.py": """
import os
from types import SimpleNamespace
def get_parallel(): return SimpleNamespace(tp_size=int(os.environ.get("STANDIN_RANKS", "1")), attn_tp_size=1)
""",
    "sglang/srt/models/deepseek_v4.py": """
class MqaAttentionBase:
    def __init__(self, config, layer_id, *, attn_tp_rank=None, attn_tp_size=None):
        self.told = (config, layer_id, attn_tp_rank, attn_tp_size)
""",
    "sglang/srt/model_loader/loader.py": "def initialize_dummy_weights(model): raise AssertionError('its own')\n",
    "sglang/kernels/ops/attention/flash_mla_sm120.py": """
import os
_sm120_default_backend = os.environ.get("SGLANG_SM120_FLASHMLA_BACKEND", "flashinfer")
def flash_mla_with_kvcache_sm120(**kwargs): return "sm_120's"
""",
    "sglang/srt/managers/scheduler_components/profiler_manager.py": """
class SchedulerProfilerManager:
    class ps: tp_rank = 0
    def _profile(self, recv_req): return f"profiled {recv_req.profile_id}"
""",
    "sglang/srt/managers/io_struct.py": """
from types import SimpleNamespace as ProfileReqOutput
""",
    "sglang/launch_server.py": """
import argparse, json, os, sys
from pathlib import Path
from types import SimpleNamespace

def batch(decode): return SimpleNamespace(forward_mode=SimpleNamespace(is_decode=lambda: decode))
def tensor(*shape): return SimpleNamespace(shape=shape)

if __name__ == "__main__":
    from sglang.srt.plugins import load_plugins
    load_plugins()
    from sglang.srt.layers.attention import deepseek_v4_backend as backend
    told = json.loads(Path(__file__).with_name("standin.json").read_text())
    backend._is_sm120 = told["sm120"] or backend._is_sm120
    attention = backend.DeepseekV4AttnBackend()
    query = tensor(8, told["heads"], 512)
    for decode in (False, True):
        attention.forward(query, tensor(8, 512), None, None, batch(decode))
    for at, entry in enumerate(told["cache"].get(Path(__file__).parents[1].name, [])):
        place = Path(os.environ["TRITON_CACHE_DIR"], f"KEY{at}", told["kernel"] + ".json")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(json.dumps(entry))
    print(told["log"], flush=True)
    parser = argparse.ArgumentParser()
    for flag in ("--port", "--served-model-name", "--disaggregation-mode", "--disaggregation-bootstrap-port"):
        parser.add_argument(flag)
    given, _ = parser.parse_known_args()
    role = given.disaggregation_mode or "single"
    command = [sys.executable, "-m", "tests.app.engine.sglang.standin_server"]
    command += ["--role", role, "--port", given.port, "--time-scale", "20"]
    command += ["--model", given.served_model_name, "--selector", "flashinfer", "--pdeathsig"]
    command += ["--bootstrap-port", given.disaggregation_bootstrap_port] if role != "single" else []
    os.environ["PYTHONPATH"] = told["lab"]
    os.environ["STANDIN"] = json.dumps(told["shown"].get(Path(__file__).parents[1].name, {}))
    os.execv(sys.executable, command)
""",
}


def make_standin(site: Path, *, sm120: bool, heads: int = 16) -> Installation:
    """Writes the stand-in package into `site`; sm120: whether its GPU is one."""
    with zipfile.ZipFile(fetch_wheel(pinned(RELEASE), default_cache())) as wheel:
        files = {name: wheel.read(name) for name in FROM_WHEEL} | {n: t.encode() for n, t in STUBS.items()}
    for name, data in files.items():
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_bytes(data)
    for folder in {p.parent for p in (site / "sglang").rglob("*.py")}:
        (folder / "__init__.py").touch()
    tell(site, sm120=sm120, heads=heads)
    return Installation(Path(sys.executable), site / "sglang", RELEASE, (site,))


def tell(site: Path, **changes: object) -> None:
    """Changes what the stand-in does at its next start: sm120, heads, kernel, log; by variant: cache entries, shown."""
    path = site / "sglang" / "standin.json"
    told = (
        json.loads(path.read_text())
        if path.exists()
        else {"cache": {}, "shown": {}, "kernel": "", "log": "", "lab": str(ROOT)}
    )
    path.write_text(json.dumps(told | changes))


def entry(warps: int, stages: int, shared: int) -> dict[str, object]:
    """Triton's metadata of one compile."""
    return {"num_warps": warps, "num_stages": stages, "shared": shared, "hash": "ab" * 32, "target": {"arch": 120}}
