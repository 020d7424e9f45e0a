"""What `./lab --version` says: the lab's version and commit, and the packages it was put together of."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
import tomllib
from pathlib import Path

from app.environment import ROOT
from app.settings import settings_here

PACKAGES = ("invoke", "locust", "docker", "sglang-router", "triton", "torch")


def version_lines(root: Path = ROOT) -> tuple[str, str]:
    """The lab's own version with its commit, and what it stands on; a package that is not installed is left out."""
    version = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    parts = [f"SGLang {settings_here(os.environ).sglang_release} in images", f"Python {platform.python_version()}"]
    parts += [f"{name} {found}" for name in PACKAGES if (found := _installed(name))]
    return f"decode-ab {version}, {_commit(root)}", ", ".join(parts)


def _commit(root: Path) -> str:
    command = ["git", "-C", str(root), "describe", "--always", "--exclude=*", "--abbrev=12", "--dirty= and changes"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    except FileNotFoundError:
        return "commit unknown without git"
    return f"commit {done.stdout.strip()}" if done.returncode == 0 else "no git checkout"


def _installed(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""
