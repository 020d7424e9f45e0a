from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from app.engine.sglang.packing import exports, make_interpreter, pack_tree, unpack


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "tree"
    (root / "site" / "real").mkdir(parents=True)
    (root / "site" / "real" / "module.py").write_text("VALUE = 7\n")
    (root / "site" / "lib.so").write_bytes(b"\x7fELF" + bytes(5000))
    (root / "site" / "link").symlink_to("real")
    return root


def test_what_was_packed_is_unpacked_links_and_all(tree: Path, tmp_path: Path) -> None:
    size = pack_tree(tree, tmp_path / "out", {"bundle": "x"})
    assert size == sum(p.stat().st_size for p in (tmp_path / "out").iterdir())
    unpack([tmp_path / "out"], tmp_path / "home")
    assert (tmp_path / "home" / "site" / "link" / "module.py").read_text() == "VALUE = 7\n"
    assert (tmp_path / "home" / "site" / "lib.so").read_bytes() == (tree / "site" / "lib.so").read_bytes()


def test_the_same_tree_packs_to_the_same_bytes(tree: Path, tmp_path: Path) -> None:
    for name in ("one", "two"):
        pack_tree(tree, tmp_path / name, {})
    assert (tmp_path / "one" / "manifest.json").read_text() == (tmp_path / "two" / "manifest.json").read_text()


def test_parts_that_share_folders_unpack_beside_each_other(tmp_path: Path) -> None:
    for folder in range(300):
        place = tmp_path / "tree" / "site" / f"package{folder}"
        place.mkdir(parents=True)
        for part in range(6):
            (place / f"lib{part}.so").write_bytes(b"\x7fELF" + bytes(part))
    pack_tree(tmp_path / "tree", tmp_path / "out", {})
    unpack([tmp_path / "out"], tmp_path / "home")
    assert len(list((tmp_path / "home").rglob("*.so"))) == 1800


def test_a_damaged_part_is_refused(tree: Path, tmp_path: Path) -> None:
    pack_tree(tree, tmp_path / "out", {})
    name = json.loads((tmp_path / "out" / "manifest.json").read_text())["parts"][0]["name"]
    (tmp_path / "out" / name).write_bytes(b"damaged")
    with pytest.raises(ValueError, match="its manifest says"):
        unpack([tmp_path / "out"], tmp_path / "home")


def test_the_interpreter_there_sees_its_own_packages_and_the_carried_ones(tmp_path: Path) -> None:
    (tmp_path / "lab").mkdir()
    (tmp_path / "lab" / "carried_module.py").write_text("VALUE = 7\n")
    python = make_interpreter(tmp_path)
    program = "import carried_module, yaml; print(carried_module.VALUE, bool(yaml.__version__))"
    done = subprocess.run([str(python), "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["7", "True"]


def test_the_exports_name_the_home_and_both_interpreters(tmp_path: Path) -> None:
    told = exports(tmp_path)
    assert (told["SGLANG_HOME"], told["SGLANG_PYTHON"]) == (str(tmp_path), sys.executable)
    assert told["LAB_PYTHON"] == str(tmp_path / "venv" / "bin" / "python")
