from __future__ import annotations

from pathlib import Path

from app.version import version_lines


def test_a_copy_without_git_has_a_version_and_says_that_its_commit_is_not_known(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[project]\nversion = "1.2.3"\n')
    assert version_lines(tmp_path)[0] == "decode-ab 1.2.3, no git checkout"
