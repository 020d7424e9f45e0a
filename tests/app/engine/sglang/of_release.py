"""Single modules of a release, loaded from the pinned wheel."""

from __future__ import annotations

import importlib.util
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from app.kernel.upstream import default_cache, fetch_wheel, pinned


def load_of_release(
    file: str, imported: Mapping[str, Mapping[str, Any]], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> ModuleType:
    """A file of 0.5.17 as a module. imported: what it takes of SGLang, by the modules' names after sglang.srt."""
    for name, held in imported.items():
        made = ModuleType(f"sglang.srt.{name}")
        vars(made).update(held)
        monkeypatch.setitem(sys.modules, made.__name__, made)
    place = folder / Path(file).name
    with zipfile.ZipFile(fetch_wheel(pinned("0.5.17"), default_cache())) as wheel:
        place.write_bytes(wheel.read(file))
    spec = importlib.util.spec_from_file_location(place.stem, place)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    return module
