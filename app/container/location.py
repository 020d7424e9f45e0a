"""Where the installed SGLang keeps a file, without importing SGLang."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from app.errors import ProofError


def installed_file(relative_path: str) -> Path:
    """Path of `sglang/...` in the installed package, for wheels and editable installs alike.

    Only the top package is looked up: finding a submodule's spec would import its parents, and with them torch.
    """
    package, _, rest = relative_path.partition("/")
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise ProofError(f"package {package!r} is not installed here; this is not an image of the lab's")
    found = [Path(place) / rest for place in spec.submodule_search_locations if (Path(place) / rest).is_file()]
    if len(found) != 1:
        places = ", ".join(spec.submodule_search_locations)
        raise ProofError(f"{rest} is in {len(found)} places of package {package!r} ({places}); it must be in one")
    return found[0].resolve()


def installed_version(package: str) -> str | None:
    """Version of an installed distribution, None when there is none."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(package)
    except PackageNotFoundError:
        return None
