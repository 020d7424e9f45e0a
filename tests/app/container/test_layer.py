"""The kernel layer's tree and the place of the installed file."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.container.layer import EPOCH, LayerTree
from app.container.location import installed_file
from app.errors import ProofError
from tests.app.container.conftest import KERNEL


def test_every_time_in_the_tree_is_fixed(tmp_path: Path) -> None:
    tree = LayerTree(tmp_path / "out")
    tree.add(Path("/opt/a/b.txt"), b"x")
    tree.seal()
    found = [p.stat().st_mtime for p in [tmp_path / "out", *(tmp_path / "out").rglob("*")]]
    assert found == [EPOCH] * 4


def test_folders_keep_the_modes_they_have_in_the_image(tmp_path: Path) -> None:
    (tmp_path / "root/opt/a").mkdir(parents=True)
    (tmp_path / "root/opt/a").chmod(0o751)
    tree = LayerTree(tmp_path / "out", tmp_path / "root")
    tree.add(Path("/opt/a/b.txt"), b"x")
    tree.add(Path("/new/c.txt"), b"x")
    tree.seal()
    modes = {name: (tmp_path / "out" / name).stat().st_mode & 0o777 for name in ("opt/a", "new", "new/c.txt")}
    assert modes == {"opt/a": 0o751, "new": 0o755, "new/c.txt": 0o644}


def test_installed_file_is_found_without_importing_the_package(package: Path) -> None:
    assert installed_file(KERNEL) == (package / KERNEL).resolve()


def test_installed_file_of_an_editable_install_is_found(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = tmp_path / "sgl-workspace" / "python"
    workspace.mkdir(parents=True)
    (package / "sglang").rename(workspace / "sglang")
    # What a .pth file of an editable install adds.
    monkeypatch.syspath_prepend(workspace)
    assert installed_file(KERNEL) == (workspace / KERNEL).resolve()


@pytest.mark.parametrize(
    ("path", "said"), [("nosuchpackage/x.py", "is not installed here"), ("sglang/missing.py", "is in 0 places")]
)
def test_missing_file_or_package_is_told(package: Path, path: str, said: str) -> None:
    with pytest.raises(ProofError, match=said):
        installed_file(path)
