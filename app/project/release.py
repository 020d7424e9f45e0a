"""A release: a clean tree whose version is written down, tests that pass, a source archive, a tag. Pushing is yours."""

from __future__ import annotations

import hashlib
import re
import subprocess
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from app.environment import ROOT
from app.errors import NotReadyError, UsageError

VERSION = re.compile(r"\d+\.\d+\.\d+")
SHOWN = 5


@dataclass(frozen=True, slots=True)
class Release:
    """What was made. tag: empty when nothing was tagged."""

    version: str
    commit: str
    archive: Path
    sha256: str
    tag: str


def show_release(version: str, skip_tests: bool, dry_run: bool) -> None:
    """Makes a release of this repository and prints what it is."""
    from app.project.checks import run_checks

    made = make_release(version, None if skip_tests else run_checks, dry_run=dry_run)
    print(f"{made.archive}  sha256 {made.sha256}, commit {made.commit}")
    print(f"tagged {made.tag}; git push origin {made.tag}" if made.tag else "nothing was tagged")


def make_release(version: str, tests: Callable[[], int] | None, *, root: Path = ROOT, dry_run: bool = False) -> Release:
    """Checks, tests, builds and tags the commit that is checked out; tests: None leaves them out and the tag says so.

    UsageError when tree, version, changelog or tag are not as a release needs them; NotReadyError when tests fail.
    """
    tag = f"v{version}"
    notes = _notes(version, root)
    _require_clean(root)
    if _git(root, "tag", "--list", tag):
        raise UsageError(f"tag {tag} exists; a release is never made twice, choose the next version")
    commit = _git(root, "rev-parse", "HEAD")
    if tests is not None and (code := tests()):
        raise NotReadyError(f"the tests end with {code}; nothing was built or tagged")
    _require_clean(root)
    archive = _build(root, version, commit)
    if not dry_run:
        message = f"decode-ab {version}\n\n{notes}" + ("" if tests else "\n\nThe tests were not run for this tag.")
        # Headings of the notes begin with the sign that git takes for a comment.
        _git(root, "tag", "--annotate", "--cleanup=verbatim", "--message", message, tag, commit)
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    return Release(version, commit, archive, digest, "" if dry_run else tag)


def _notes(version: str, root: Path) -> str:
    if not VERSION.fullmatch(version):
        raise UsageError(f"--version {version!r}: MAJOR.MINOR.PATCH, for example 0.2.0")
    written = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    if written != version:
        raise UsageError(f"pyproject.toml says version {written}, not {version}; write it there and commit")
    changelog = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    found = re.search(rf"^## {re.escape(version)}\b[^\n]*\n(.*?)(?=^## |\Z)", changelog, re.MULTILINE | re.DOTALL)
    if found is None or not found.group(1).strip():
        raise UsageError(f"CHANGELOG.md has nothing under '## {version}'; write what changed and commit")
    return found.group(1).strip()


def _require_clean(root: Path) -> None:
    changed = _git(root, "status", "--porcelain").splitlines()
    if changed:
        named = ", ".join(line[3:] for line in changed[:SHOWN])
        more = f" and {len(changed) - SHOWN} more" if len(changed) > SHOWN else ""
        raise UsageError(f"the tree is not clean: {named}{more}; commit, ignore or remove them")


def _build(root: Path, version: str, commit: str) -> Path:
    name = f"decode-ab-{version}"
    archive = root / "dist" / f"{name}.tar.gz"
    archive.parent.mkdir(exist_ok=True)
    _git(root, "archive", "--format=tar.gz", f"--prefix={name}/", f"--output={archive}", commit)
    return archive


def _git(root: Path, *arguments: str) -> str:
    try:
        ended = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True)
    except FileNotFoundError as e:
        raise NotReadyError("git is not installed; a release is a tag in a git repository") from e
    if ended.returncode != 0:
        said = " ".join(ended.stderr.split()) or f"exit code {ended.returncode}"
        raise NotReadyError(f"git {arguments[0]} in {root} failed: {said}")
    return ended.stdout.rstrip("\n")
