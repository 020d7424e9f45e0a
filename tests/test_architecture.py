from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "architecture.md"
ROOMS = {p.name for p in (ROOT / "loadtest").iterdir() if (p / "__init__.py").is_file()}


def drawn() -> list[set[tuple[str, str]]]:
    """Arrows of each block of arrows on the page; of a dotted name its package."""
    blocks = re.findall(r"```text\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    lines = [[re.findall(r"(\w+)(?:\.\w+)?", line) for line in block.splitlines()] for block in blocks]
    return [{pair for names in block for pair in pairwise(names)} for block in lines]


def imports(folder: Path) -> Iterator[tuple[Path, str]]:
    for path in folder.rglob("*.py") if folder.is_dir() else [folder]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                yield from ((path, alias.name) for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module:
                yield from ((path, f"{node.module}.{alias.name}") for alias in node.names)


def test_the_arrows_between_packages_are_how_they_import_each_other() -> None:
    packages = {"tasks": "tasks.py", "app": "app", "kernels": "kernels", "loadtest": "loadtest"}
    seen = {(name, said.split(".")[0]) for name, place in packages.items() for _, said in imports(ROOT / place)}
    assert drawn()[0] == {(a, b) for a, b in seen if b in packages and a != b}


def test_the_picture_of_the_paths_names_modules_that_exist() -> None:
    picture = (ROOT / "docs" / "images" / "architecture.svg").read_text(encoding="utf-8")
    named = re.findall(r">((?:app|kernels|loadtest)/[\w./]+)<", picture)
    assert len(named) > 15
    assert [place for place in named if not (ROOT / place).exists()] == []


def test_the_arrows_of_the_load_side_are_how_its_rooms_import_each_other() -> None:
    seen = {
        (path.relative_to(ROOT / "loadtest").parts[0], said.split(".")[1])
        for path, said in imports(ROOT / "loadtest")
        if said.startswith("loadtest.")
    }
    assert drawn()[1] == {(a, b) for a, b in seen if a != b and {a, b} <= ROOMS}
