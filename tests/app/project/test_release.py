from __future__ import annotations

import hashlib
import subprocess
import tarfile
from pathlib import Path

import pytest

from app.errors import NotReadyError, UsageError
from app.project.release import make_release

CHANGES = "# Changes\n\n## 0.2.0 (2026-12-01)\n\n- One thing.\n\n### Mended\n\n- Another.\n\n## 0.1.0\n\n- The first.\n"


def git(root: Path, *arguments: str) -> str:
    command = ["git", "-c", "user.name=t", "-c", "user.email=t@example.org", *arguments]
    return subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository whose one commit is ready to be released as 0.2.0."""
    for who in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{who}_NAME", "t")
        monkeypatch.setenv(f"GIT_{who}_EMAIL", "t@example.org")
    (tmp_path / "pyproject.toml").write_text('[project]\nversion = "0.2.0"\n')
    (tmp_path / "CHANGELOG.md").write_text(CHANGES)
    (tmp_path / ".gitignore").write_text("dist/\n")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "Begin")
    return tmp_path


def test_a_release_is_an_archive_of_the_commit_and_a_tag_with_its_notes(root: Path) -> None:
    made = make_release("0.2.0", lambda: 0, root=root)
    assert git(root, "rev-parse", "v0.2.0^{commit}").strip() == made.commit
    message = git(root, "tag", "--list", "--format=%(contents)", "v0.2.0").strip()
    assert message == "decode-ab 0.2.0\n\n- One thing.\n\n### Mended\n\n- Another."
    assert made.sha256 == hashlib.sha256(made.archive.read_bytes()).hexdigest()
    with tarfile.open(made.archive) as archive:
        assert "decode-ab-0.2.0/pyproject.toml" in archive.getnames()


def test_a_dry_run_builds_and_tags_nothing(root: Path) -> None:
    made = make_release("0.2.0", lambda: 0, root=root, dry_run=True)
    assert (made.tag, git(root, "tag")) == ("", "")
    assert made.archive.is_file()


def test_a_tag_without_tests_says_so(root: Path) -> None:
    make_release("0.2.0", None, root=root)
    assert "tests were not run" in git(root, "tag", "--list", "--format=%(contents)", "v0.2.0")


def test_failing_tests_leave_no_archive_and_no_tag(root: Path) -> None:
    with pytest.raises(NotReadyError, match="the tests end with 1"):
        make_release("0.2.0", lambda: 1, root=root)
    assert git(root, "tag") == ""
    assert not (root / "dist").exists()


@pytest.mark.parametrize(
    ("version", "says"),
    [("0.2", "MAJOR.MINOR.PATCH"), ("v0.2.0", "MAJOR.MINOR.PATCH"), ("0.3.0", "pyproject.toml says version 0.2.0")],
)
def test_a_wrong_version_is_refused(root: Path, version: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        make_release(version, lambda: 0, root=root)


def test_a_version_that_the_changelog_does_not_name_is_refused(root: Path) -> None:
    (root / "CHANGELOG.md").write_text("# Changes\n\n## 0.2.0\n\n## 0.1.0\n\n- The first.\n")
    git(root, "commit", "-q", "-a", "-m", "Say nothing")
    with pytest.raises(UsageError, match=r"nothing under '## 0\.2\.0'"):
        make_release("0.2.0", lambda: 0, root=root)


def test_a_tree_with_changes_is_refused_by_their_names(root: Path) -> None:
    (root / "new.txt").write_text("x")
    (root / "CHANGELOG.md").write_text(CHANGES + "more\n")
    with pytest.raises(UsageError, match=r"not clean: CHANGELOG\.md, new\.txt;"):
        make_release("0.2.0", lambda: 0, root=root)


def test_tests_that_leave_files_behind_stop_a_release(root: Path) -> None:
    def untidy() -> int:
        (root / "left.txt").write_text("x")
        return 0

    with pytest.raises(UsageError, match=r"left\.txt"):
        make_release("0.2.0", untidy, root=root)


def test_a_release_is_not_made_twice(root: Path) -> None:
    make_release("0.2.0", None, root=root)
    with pytest.raises(UsageError, match=r"tag v0\.2\.0 exists"):
        make_release("0.2.0", None, root=root)


def test_a_folder_without_git_is_refused(root: Path) -> None:
    (root / ".git").rename(root / "not-git")
    with pytest.raises(NotReadyError, match="git status"):
        make_release("0.2.0", None, root=root)
