"""From one YAML file to one Variant, with every rule that a single file can break."""

from __future__ import annotations

import keyword
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

from app.kernel.replacement import replacement_fault
from app.kernel.selector import SELECTORS
from app.kernel.variant import Change, KernelConfig, Selector, Target, Variant
from app.yaml_file import Entry, read_yaml

STATUSES = ("control", "planned", "open", "confirmed", "refuted")
WARPS = (1, 2, 4, 8, 16, 32)
# Variant names become image tags and folder names; these two tags have a meaning of their own there.
_RESERVED = ("latest", "stable")
_NAME = r"[a-z0-9][a-z0-9._-]{0,39}"
NAME_ALLOWED = "1 to 40 of a-z, 0-9, '.', '_', '-', starting with a letter or digit"
_IDENTIFIER = r"[A-Za-z_][A-Za-z0-9_]{0,127}"


@dataclass(frozen=True, slots=True)
class ParsedVariant:
    """A variant and where its names stand, for faults that only several files together show."""

    variant: Variant
    name: Entry
    control: Entry | None
    kernel: Entry | None


def read_variant(path: Path, root: Path) -> ParsedVariant:
    """The variant in a file; VariantError names line, value and what is allowed."""
    shown = path.relative_to(root) if path.is_relative_to(root) else path
    file = read_yaml(path, shown_as=shown)
    keys = file.mapping(
        required=("name", "selector", "hypothesis", "status"), optional=("control", "target", "change", "prediction")
    )
    name = _name(keys["name"])
    selector = cast(Selector, keys["selector"].choice(SELECTORS))
    target = _target(keys["target"]) if "target" in keys else None
    control = keys.get("control")
    prediction = _prediction(keys["prediction"]) if "prediction" in keys else {}
    if (selector == "triton") != (target is not None):
        needed = "needs a target" if target is None else "can have no target: that backend does not run the kernel file"
        raise keys["selector"].refusal(f"{selector!r} {needed}")
    if "change" in keys and target is None:
        raise keys["change"].refusal(f"selector {selector!r} does not run the kernel file, so a change does nothing")
    if prediction and control is None:
        raise keys["prediction"].refusal("is against a control, and none is named; add control: NAME, or leave it out")
    variant = Variant(
        name=name,
        control=_name(control) if control else None,
        selector=selector,
        target=target,
        change=_change(keys["change"], root) if "change" in keys else Change(),
        hypothesis=" ".join(keys["hypothesis"].text().split()),
        prediction=prediction,
        status=keys["status"].choice(STATUSES),
        path=shown,
    )
    kernel = keys["target"].mapping(required=("module", "kernel"))["kernel"] if "target" in keys else None
    return ParsedVariant(variant, keys["name"], control, kernel)


def name_fault(name: str) -> str | None:
    """Why no variant can be called so, as a phrase that follows the name; None when one can."""
    if not re.fullmatch(_NAME, name):
        return f"must be {NAME_ALLOWED}"
    return "is reserved for image tags" if name in _RESERVED else None


def _name(entry: Entry) -> str:
    name = entry.text(_NAME, NAME_ALLOWED)
    if fault := name_fault(name):
        raise entry.refusal(f"{name!r} {fault}")
    return name


def _identifier(entry: Entry) -> str:
    name = entry.text(_IDENTIFIER, "a Python name")
    if keyword.iskeyword(name):
        raise entry.refusal(f"must be a Python name, not the keyword {name!r}")
    return name


def _target(entry: Entry) -> Target:
    keys = entry.mapping(required=("module", "kernel"))
    module = keys["module"].text(rf"{_IDENTIFIER}(\.{_IDENTIFIER})*", "a dotted module path")
    return Target(module, _identifier(keys["kernel"]))


def _change(entry: Entry, root: Path) -> Change:
    keys = entry.mapping(required=(), optional=("file", "configs", "key", "constants"))
    return Change(
        file=_file(keys["file"], root) if "file" in keys else None,
        configs=_configs(keys["configs"]) if "configs" in keys else None,
        key=_key(keys["key"]) if "key" in keys else None,
        constants={_identifier(name): value.literal() for name, value in keys["constants"].pairs()}
        if "constants" in keys
        else {},
    )


def _file(entry: Entry, root: Path) -> Path:
    file = Path(entry.text())
    if fault := replacement_fault(root, file):
        raise entry.refusal(fault)
    return file


def _key(entry: Entry) -> tuple[str, ...]:
    names = [_identifier(item) for item in entry.items()]
    if len(set(names)) != len(names):
        raise entry.refusal(f"an argument is named twice in {', '.join(names)}")
    return tuple(names)


def _configs(entry: Entry) -> tuple[KernelConfig, ...]:
    items = entry.items()
    configs = [_config(item) for item in items]
    for i, (item, config) in enumerate(zip(items, configs, strict=True)):
        if config in configs[:i]:
            raise item.refusal(f"{config} is listed twice")
        if config.constants.keys() != configs[0].constants.keys():
            raise item.refusal(f"{config} must set the same constants as {configs[0]}")
    return tuple(configs)


def _config(entry: Entry) -> KernelConfig:
    keys = {_identifier(name): value for name, value in entry.pairs()}
    if missing := [name for name in ("num_warps", "num_stages") if name not in keys]:
        raise entry.refusal(f"missing {', '.join(missing)}")
    warps, stages = keys.pop("num_warps"), keys.pop("num_stages")
    warps_allowed, stages_allowed = f"one of {', '.join(map(str, WARPS))}", "a whole number from 1"
    if (num_warps := warps.integer(warps_allowed)) not in WARPS:
        raise warps.refusal(f"must be {warps_allowed}, not {num_warps}")
    if (num_stages := stages.integer(stages_allowed)) < 1:
        raise stages.refusal(f"must be {stages_allowed}, not {num_stages}")
    return KernelConfig({name: _constant(name, value) for name, value in keys.items()}, num_warps, num_stages)


def _constant(name: str, entry: Entry) -> int | bool | str:
    value = entry.scalar()
    if name.startswith("BLOCK_"):
        # Triton's ranges and tiles need powers of two, and it says so only when the kernel compiles.
        if isinstance(value, bool) or not isinstance(value, int) or value < 1 or value.bit_count() != 1:
            raise entry.refusal(f"must be a power of two (1, 2, 4, 8, 16, 32, ...), not {value!r}")
        return value
    if not isinstance(value, int | str):
        raise entry.refusal(f"must be a whole number, true, false or a text; not {value!r}")
    return value


def _prediction(entry: Entry) -> dict[int, tuple[float, float]]:
    prediction: dict[int, tuple[float, float]] = {}
    for level, interval in entry.pairs():
        concurrency = level.integer("a concurrency (whole number from 1)")
        if concurrency < 1:
            raise level.refusal(f"concurrency must be at least 1, not {concurrency}")
        interval = replace(interval, label=f"{entry.label} at {concurrency}")
        bounds = [bound.number() for bound in interval.items()]
        if len(bounds) != 2 or bounds[0] > bounds[1]:
            raise interval.refusal(f"must be [low, high] in percent, low first; not {bounds}")
        if bounds[0] < -100:
            raise interval.refusal(f"a loss of more than 100 % cannot be: {bounds}")
        prediction[concurrency] = (bounds[0], bounds[1])
    if list(prediction) != sorted(prediction):
        raise entry.refusal(f"concurrencies must rise: {', '.join(map(str, sorted(prediction)))}")
    return prediction
