from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from app.engine.sglang.installation import find_installation
from app.errors import NotReadyError, UsageError


def prepared(home: Path, version: str = "0.5.17") -> dict[str, str]:
    (home / "site" / "sglang").mkdir(parents=True)
    (home / "site" / "sglang" / "__init__.py").touch()
    told = {"version": version, "paths": ["site", "stubs"], "environment": {"TVM_FFI_CACHE_DIR": "{home}/tvm"}}
    (home / "installation.json").write_text(json.dumps(told))
    return {"SGLANG_HOME": str(home)}


def test_a_prepared_folder_names_its_paths_and_caches(tmp_path: Path) -> None:
    found = find_installation("0.5.17", prepared(tmp_path))
    assert (found.package, found.paths) == (tmp_path / "site" / "sglang", (tmp_path / "site", tmp_path / "stubs"))
    assert found.environment == {"TVM_FFI_CACHE_DIR": f"{tmp_path}/tvm"}


def test_another_release_than_the_one_asked_for_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"SGLang 0\.5\.23 is at .*, 0\.5\.17 was asked for"):
        find_installation("0.5.17", prepared(tmp_path, "0.5.23"))


def test_a_folder_that_was_not_prepared_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotReadyError, match="make the folder with invoke prepare-gpu"):
        find_installation("0.5.17", {"SGLANG_HOME": str(tmp_path)})


def test_an_interpreter_without_sglang_is_refused_with_both_ways_out() -> None:
    with pytest.raises(NotReadyError, match=r"has no SGLang; set SGLANG_PYTHON .* or SGLANG_HOME"):
        find_installation("0.5.17", {"SGLANG_PYTHON": sys.executable})


def test_an_interpreter_that_is_none_is_refused() -> None:
    with pytest.raises(NotReadyError, match="cannot be run"):
        find_installation("0.5.17", {"SGLANG_PYTHON": "/nowhere/python"})
