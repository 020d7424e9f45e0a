from __future__ import annotations

import sys
from pathlib import Path

import pytest

from app.lazily import lazily


def test_a_module_is_loaded_at_its_first_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lately_used.py").write_text("import sys\nsys.lately_loaded = True\nvalue = 7\n")
    monkeypatch.syspath_prepend(tmp_path)
    module = lazily("lately_used")
    assert not hasattr(sys, "lately_loaded")
    assert module.value == 7
    assert hasattr(sys, "lately_loaded")


def test_a_module_that_is_not_there_is_named() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"no module named app\.nowhere"):
        lazily("app.nowhere")


def test_a_module_is_found_in_its_package_as_after_an_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "roomy").mkdir()
    (tmp_path / "roomy" / "__init__.py").touch()
    (tmp_path / "roomy" / "inner.py").write_text("value = 7\n")
    monkeypatch.syspath_prepend(tmp_path)
    module = lazily("roomy.inner")
    assert sys.modules["roomy"].inner is module
