"""The file of a new variant: another's change to start from, and what each field means beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from app.environment import ROOT
from app.errors import UsageError
from app.kernel.patch import read_configs
from app.kernel.selector import SELECTOR, SELECTORS
from app.kernel.upstream import fetch_base
from app.kernel.variant import Change, KernelConfig, Variant
from app.kernel.variant_files import NAME_ALLOWED, STATUSES, WARPS, name_fault
from app.kernel.variants import VARIANTS, Registry, load_variants
from app.records import write_text

TEMPLATE = Path(__file__).with_name("draft.yaml.j2")


def write_draft(name: str, origin: str, folder: Path = VARIANTS, root: Path = ROOT) -> Path:
    """Writes NAME.yaml with the origin's change and the origin as control, and returns its path.

    UsageError for a name that cannot be or is there already, and for an origin that runs no kernel file.
    """
    registry = load_variants(folder, root)
    path = folder / f"{name}.yaml"
    if fault := name_fault(name) or _taken(name, path, registry):
        raise UsageError(f"--name {name!r} {fault}")
    write_text(path, draft_text(name, registry.get(origin)))
    return path


def draft_text(name: str, origin: Variant) -> str:
    """The file's text. Where the origin changes nothing, it lists the configs of SGLang's own file, to be changed."""
    if (target := origin.target) is None:
        raise UsageError(
            f"--from {origin.name!r} runs no kernel file to change; start from one whose selector is triton"
        )
    if (change := origin.change).empty:
        text = fetch_base(module=target.module).text
        change = Change(configs=tuple(read_configs(text, target.kernel)))
    jinja = Environment(
        loader=FileSystemLoader(TEMPLATE.parent),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    jinja.globals |= {"SELECTOR": SELECTOR, "SELECTORS": SELECTORS, "STATUSES": STATUSES, "WARPS": WARPS}
    jinja.globals |= {"NAME_ALLOWED": NAME_ALLOWED, "plain": _plain, "block": _block, "fields": _fields}
    return jinja.get_template(TEMPLATE.name).render(name=name, origin=origin.name, target=target, change=change)


def _taken(name: str, path: Path, registry: Registry) -> str:
    if name not in registry.variants and not path.exists():
        return ""
    place = registry.variants[name].path if name in registry.variants else path
    return f"is the name of {place} already; choose another"


def _fields(config: KernelConfig) -> dict[str, Any]:
    return {**config.constants, "num_warps": config.num_warps, "num_stages": config.num_stages}


def _plain(value: Any) -> str:
    """YAML on one line."""
    text = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=float("inf"))
    return text.removesuffix("...\n").rstrip("\n")


def _block(value: Any) -> str:
    """YAML with a line for each list that holds none."""
    return yaml.safe_dump(value, default_flow_style=None, sort_keys=False, width=110).rstrip("\n")
