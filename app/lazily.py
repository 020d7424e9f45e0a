"""Modules that are loaded when first used, so that listing the tasks loads none of them."""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType


def lazily(name: str) -> ModuleType:
    """The module, loaded at the first use of anything in it; ModuleNotFoundError when there is none."""
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.find_spec(name)
    if spec is None or spec.loader is None:
        raise ModuleNotFoundError(f"no module named {name}")
    spec.loader = importlib.util.LazyLoader(spec.loader)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    # As an import would: else the package seems to have no such module.
    package, _, own = name.rpartition(".")
    if package:
        setattr(sys.modules[package], own, module)
    return module
