"""Imports that load a module when it is first used, so that listing the tasks loads none of the lab."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import LazyLoader
from types import ModuleType


@contextmanager
def lazily(package: str) -> Iterator[None]:
    """Inside, a module of the package that is imported is loaded at the first use of anything in it."""
    finder = _LazyFinder(f"{package}.")
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


class _LazyFinder(MetaPathFinder):
    def __init__(self, prefix: str) -> None:
        self.prefix = prefix

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not fullname.startswith(self.prefix):
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec and spec.loader:
            spec.loader = LazyLoader(spec.loader)
        return spec
