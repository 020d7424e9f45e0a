"""Imports that load a module when it is first used: the list of tasks loads none of the lab, a refusal little of it."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import LazyLoader
from types import ModuleType


@contextmanager
def lazily(*packages: str) -> Iterator[None]:
    """Inside, a module of the packages that is imported is loaded at the first use of anything in it."""
    finder = _LazyFinder(tuple(f"{package}." for package in packages))
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


def load_now(*names: str) -> None:
    """Loads what was imported lazily of modules by these names or inside these packages, and what they import so."""
    inside = tuple(f"{name}." for name in names)
    while waiting := [
        module
        for name, module in list(sys.modules.items())
        if (name in names or name.startswith(inside)) and type(module) is not ModuleType
    ]:
        for module in waiting:
            # Any look at its attributes loads it.
            vars(module)


class _LazyFinder(MetaPathFinder):
    def __init__(self, prefixes: tuple[str, ...]) -> None:
        self.prefixes = prefixes

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not fullname.startswith(self.prefixes):
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec and spec.loader:
            spec.loader = LazyLoader(spec.loader)
        return spec
