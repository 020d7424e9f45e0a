"""Everything that a local SGLang server finds in its environment: set here in full, and recorded."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

from app.engine.sglang.caches import VARIABLES
from app.engine.sglang.commands import QUIET_HEALTH
from app.engine.sglang.installation import Installation
from app.engine.sglang.package import PLUGIN_NAME
from app.engine.sglang.plugin.decode_ab_hooks import ORDERS
from app.engine.sglang.served import Served
from app.kernel.selector import SELECTOR

# Without these SGLang compiles for minutes at its first start: DeepGEMM, TileLang and torch.compile.
LIGHT: Mapping[str, str] = {
    "SGLANG_OPT_USE_TILELANG_MHC_PRE": "0",
    "SGLANG_OPT_DEEPGEMM_HC_PRENORM": "0",
    "SGLANG_FP8_PAGED_MQA_LOGITS_TORCH": "1",
    "TORCHDYNAMO_DISABLE": "1",
}
# The weights of the lab's model are bf16; SGLang would take a V4 model's experts for FP4.
DUMMY_WEIGHTS: Mapping[str, str] = {"SGLANG_OPT_FP8_WO_A_GEMM": "0", "SGLANG_DSV4_FP4_EXPERTS": "0"}
OFFLINE: Mapping[str, str] = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
# A host may forbid multicast over NVLink; what it says holds for servers too.
HOST_RULES = ("NCCL_NVLS_ENABLE", "TORCH_SYMM_MEM_DISABLE_MULTICAST", "NVSHMEM_DISABLE_NVLS")


def engine_environment(served: Served, installation: Installation, caches: Path) -> dict[str, str]:
    """What all servers of a campaign share. caches: the folder under which every compiler keeps its results."""
    rules = {name: os.environ[name] for name in HOST_RULES if name in os.environ}
    return {
        **{name: str(caches / folder) for name, folder in VARIABLES.items()},
        **OFFLINE,
        **QUIET_HEALTH,
        **(LIGHT if served.light else {}),
        **(DUMMY_WEIGHTS if served.dummy else {}),
        "SGLANG_PLUGINS": PLUGIN_NAME,
        # The autotuner says what it chose in no other way.
        "TRITON_PRINT_AUTOTUNING": "1",
        # And what it says would stay in a buffer until the server is ended, and be lost.
        "PYTHONUNBUFFERED": "1",
        **rules,
        **installation.environment,
    }


def service_variables(selector: str, path: str, served: Served, evidence: Path) -> dict[str, str]:
    """What one service adds: the selector, unless the card's own default is meant, and the orders for the hooks."""
    orders = {
        "path": path,
        "dummy": served.dummy,
        "torch_indexer": served.light,
        "one_of": served.one_of,
        "evidence": str(evidence),
    }
    chosen = {} if selector == "flashmla" else {SELECTOR: selector}
    return {**chosen, ORDERS: json.dumps(orders)}
