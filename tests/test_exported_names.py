"""What a module exports by __all__ is there, and somebody outside asks for it by that door."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("app", "kernels", "loadtest")
FILES = [p for folder in FOLDERS for p in sorted((ROOT / folder).rglob("*.py"))]
EXPORTING = [p for p in FILES if "\n__all__ = " in p.read_text(encoding="utf-8")]


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def exported(path: Path) -> list[str]:
    (names,) = [
        n.value for n in tree(path).body if isinstance(n, ast.Assign) and ast.unparse(n.targets[0]) == "__all__"
    ]
    return list(ast.literal_eval(names))


def defined(path: Path) -> set[str]:
    found: set[str] = set()
    for node in tree(path).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.ImportFrom | ast.Import):
            found |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.Assign):
            found |= {ast.unparse(target) for target in node.targets}
    return found


def asked_for(module: str, inside: Path) -> set[str]:
    """Names that files outside take from a module, be it by import or as an attribute of something."""
    found: set[str] = set()
    for path in [ROOT / "tasks.py", *FILES, *(ROOT / "tests").rglob("*.py")]:
        if path == inside or (inside.name == "__init__.py" and inside.parent in path.parents):
            continue
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.ImportFrom) and node.module == module:
                found |= {alias.name for alias in node.names}
            elif isinstance(node, ast.Attribute):
                found.add(node.attr)
    return found


@pytest.mark.parametrize("path", EXPORTING, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_an_exported_name_exists_and_is_asked_for_from_outside(path: Path) -> None:
    module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    names = set(exported(path))
    assert names <= defined(path)
    assert names <= asked_for(module, path)
