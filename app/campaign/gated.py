"""What the gate had found of a campaign's variants before it began, where `invoke check` or a build asked for it."""

from __future__ import annotations

import importlib.metadata
import os
from collections.abc import Callable, Mapping

from app.campaign.runs import RunFolder
from app.campaign.runtimes import Setup
from app.gate.kept import kept_report, kept_targets, target_words
from app.kernel.placed import PlacedKernel
from app.kernel.variants import Registry
from app.records import read_json, write_json
from app.settings import settings_here
from kernels.geometry import DEEPSEEK_V4_FLASH, geometry_of
from loadtest.plan import Plan


def keep_findings(
    folder: RunFolder,
    plan: Plan,
    registry: Registry,
    kernels: Mapping[str, PlacedKernel],
    setup: Setup,
    say: Callable[[str], None],
) -> None:
    """Writes gate.json: the gate's report of each judged variant whose files, card and Triton it was made of.

    say: hears of one that the gate ran on for another card, other heads or another Triton alone.
    """
    try:
        triton = importlib.metadata.version("triton")
    except importlib.metadata.PackageNotFoundError:
        return
    arch, heads = decode_rank(setup)
    digests = {name: kernels[name].sha256 if registry.get(name).target else "" for name in plan.variants}
    found = dict(read_json(folder.gate_file)) if folder.gate_file.is_file() else {}
    for names in plan.controls.items():
        variant, control = names
        files = digests[variant], digests[control]
        if report := kept_report(names, files, arch, heads, triton):
            found[variant] = report
        elif targets := "; ".join(kept_targets(names, files)):
            say(f"the gate ran on {variant} for {targets}, not for {target_words(arch, heads, triton)} as here")
    if found:
        write_json(folder.gate_file, found)


def decode_rank(setup: Setup) -> tuple[int, int]:
    """Compute capability that a rank of decode has, or is built for, and its query heads."""
    if (setup.runtime, setup.engine) == ("local", "sglang"):
        # Deferred: the simulated engine needs none of it.
        from app.engine.sglang.engine import device_arch, model_folder, rank_of

        served = setup.served()
        if served.dummy:
            heads = served.heads // served.ranks
        else:
            heads = rank_of(model_folder(served.model), served.ranks).local_heads
        return served.arch or device_arch(), heads
    settings = settings_here(os.environ)
    return settings.cuda_arch, geometry_of(DEEPSEEK_V4_FLASH, settings.decode_tp).local_heads
