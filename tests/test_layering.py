from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def modules(folder: str) -> list[Path]:
    return sorted((ROOT / folder).rglob("*.py"))


@pytest.mark.parametrize("path", modules("kernels"), ids=lambda p: p.stem)
def test_a_kernel_module_imports_nothing_of_the_lab(path: Path) -> None:
    assert not [name for name in imported(path) if name.split(".")[0] in ("app", "loadtest")]


@pytest.mark.parametrize("path", modules("loadtest"), ids=lambda p: p.stem)
def test_a_load_module_knows_of_the_lab_only_its_errors(path: Path) -> None:
    of_app = [name for name in imported(path) if name.split(".")[0] == "app"]
    assert [name for name in of_app if not name.startswith("app.errors")] == []
    assert not [name for name in imported(path) if name.split(".")[0] == "docker"]


def rooms() -> list[str]:
    """Rooms of app/ in the order of the table on the page, lowest first."""
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    return re.findall(r"^\| `(\w+)/` \|", page.split("| room of `app/` |")[1], re.MULTILINE)


def test_the_table_of_rooms_names_all_of_them() -> None:
    assert sorted(rooms()) == sorted(p.parent.name for p in (ROOT / "app").glob("*/__init__.py"))


@pytest.mark.parametrize("room", rooms())
def test_a_room_knows_only_the_rooms_above_it_in_the_table(room: str) -> None:
    known = rooms()[: rooms().index(room) + 1]
    names = {name.split(".")[1] for path in modules(f"app/{room}") for name in imported(path) if name[:4] == "app."}
    assert not names & (set(rooms()) - set(known))


def test_a_module_beside_the_rooms_knows_none_of_them() -> None:
    names = {
        name.split(".")[1] for path in (ROOT / "app").glob("*.py") for name in imported(path) if name[:4] == "app."
    }
    assert not names & set(rooms())


def known_of(path: Path) -> set[Path]:
    """Files of this repository that a module imports from, wherever in it the import stands."""
    return {file for name in imported(path) if (file := file_of(name) or file_of(name.rpartition(".")[0]))} - {path}


def file_of(name: str) -> Path | None:
    place = ROOT.joinpath(*name.split("."))
    return next((file for file in (place.with_suffix(".py"), place / "__init__.py") if file.is_file()), None)


def test_no_module_knows_one_that_knows_it() -> None:
    files = [path for folder in ("app", "kernels", "loadtest") for path in modules(folder)]
    order = TopologicalSorter({path: known_of(path) for path in files})
    try:
        order.prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(str(path.relative_to(ROOT)) for path in error.args[1]))


# Lowest first: a package of the load side knows only those named before it.
LAYERS = ("client", "measure", "judge", "drive")


@pytest.mark.parametrize("layer", LAYERS)
def test_a_layer_of_the_load_side_knows_only_the_layers_below(layer: str) -> None:
    above = LAYERS[LAYERS.index(layer) + 1 :]
    names = {
        name.split(".")[1] for path in modules(f"loadtest/{layer}") for name in imported(path) if "loadtest." in name
    }
    assert not names & set(above)


def test_the_tasks_know_only_app_and_invoke() -> None:
    foreign = {name.split(".")[0] for name in imported(ROOT / "tasks.py")} - {"app", "invoke", "__future__"}
    assert foreign <= {"functools", "collections", "pathlib", "typing"}
