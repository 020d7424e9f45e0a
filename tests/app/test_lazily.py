from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from app.lazily import lazily, load_now


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A package with a module that says when it is loaded, and one beside it of another package."""
    for place in ("roomy/inner.py", "other/inner.py"):
        (tmp_path / place).parent.mkdir()
        (tmp_path / place).with_name("__init__.py").touch()
        (tmp_path / place).write_text(f"import sys\nsys.lately = sys.lately + [{place!r}]\nvalue = 7\n")
    monkeypatch.setattr(sys, "lately", [], raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("roomy", "roomy.inner", "other", "other.inner"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return "roomy"


def loaded() -> list[str]:
    return list(sys.lately)  # type: ignore[attr-defined]


def test_a_module_is_loaded_at_its_first_use(package: str) -> None:
    with lazily(package):
        module = importlib.import_module("roomy.inner")
    assert loaded() == []
    assert module.value == 7
    assert loaded() == ["roomy/inner.py"]


def test_another_package_and_whatever_comes_after_are_loaded_at_once(package: str) -> None:
    with lazily(package):
        importlib.import_module("other.inner")
    importlib.import_module("roomy.inner")
    assert loaded() == ["other/inner.py", "roomy/inner.py"]


def test_a_module_that_is_not_there_is_named() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"No module named 'app\.nowhere'"), lazily("app"):
        importlib.import_module("app.nowhere")


def test_a_module_is_found_in_its_package_as_after_an_import(package: str) -> None:
    with lazily(package):
        module = importlib.import_module("roomy.inner")
    assert sys.modules["roomy"].inner is module


@pytest.mark.parametrize(
    ("names", "expected"), [(("roomy",), ["roomy/inner.py"]), (("roomy.inner",), ["roomy/inner.py"]), (("room",), [])]
)
def test_what_waits_can_be_loaded_before_its_first_use(
    package: str, names: tuple[str, ...], expected: list[str]
) -> None:
    with lazily(package):
        importlib.import_module("roomy.inner")
    load_now(*names)
    assert loaded() == expected


def test_loading_now_also_loads_what_the_loaded_imports_lazily(package: str, tmp_path: Path) -> None:
    lazy = "from app.lazily import lazily\nwith lazily('roomy'):\n    from roomy import inner\n"
    (tmp_path / "roomy" / "outer.py").write_text(lazy)
    with lazily(package):
        importlib.import_module("roomy.outer")
    assert loaded() == []
    load_now(package)
    assert loaded() == ["roomy/inner.py"]


def test_several_packages_are_loaded_lazily_at_once(package: str) -> None:
    with lazily(package, "other"):
        importlib.import_module("roomy.inner")
        importlib.import_module("other.inner")
    assert loaded() == []
