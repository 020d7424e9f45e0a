"""Why compiled configurations cannot be launched, in words, and what to change."""

from __future__ import annotations

from collections.abc import Sequence

from kernels.resources import Resources


def launch_fault(found: Sequence[Resources]) -> str:
    """Why the autotuner would find nothing to launch, in one line with what to change; empty where it would."""
    for resources in found:
        if resources.error is not None and not resources.dropped:
            what = f"does not compile: {named(resources)}: {resources.error}"
            return f"{what}; mend the kernel's file, or leave this config out"
    for use in dict.fromkeys(resources.use for resources in found):
        mine = [resources for resources in found if resources.use == use]
        if not any(resources.fits for resources in mine):
            return f"no config survives on {mine[0].limits.name}: {_shortfall(mine)}"
    return ""


def _shortfall(found: Sequence[Resources]) -> str:
    """Why none of these fits, and what to change."""
    compiled = [resources for resources in found if resources.error is None]
    if not compiled:
        return f"none compiles ({found[0].error}); mend the kernel's file or its configs"
    least = min(compiled, key=lambda resources: resources.shared_bytes)
    why = f"even {named(least)} {excess(least)}"
    if least.shared_bytes <= least.limits.cta_shared_bytes:
        return f"{why}; add a config of fewer num_warps"
    fewer = "fewer num_stages or " if least.config.num_stages > 1 else ""
    tiles = [name for name, value in least.config.constants.items() if type(value) is int and name != "maxnreg"]
    return f"{why}; add a config of {fewer}a smaller {' or '.join(tiles) or 'tile'}"


def named(resources: Resources) -> str:
    """A configuration with the way it is launched."""
    return f"{resources.config} in {resources.use}" if resources.use else str(resources.config)


def excess(resources: Resources) -> str:
    """What one that compiled needs beyond the limits of its target."""
    limits = resources.limits
    if resources.shared_bytes > limits.cta_shared_bytes:
        return (
            f"needs {resources.shared_bytes} B of shared memory, over the {limits.cta_shared_bytes} B of {limits.name}"
        )
    return f"needs {resources.num_warps} warps of {resources.registers} registers, more than an SM of {limits.name} has"
