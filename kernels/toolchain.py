"""Which Triton compiles: the one of this interpreter, or another version in a virtual environment made on demand."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path


class ToolchainError(RuntimeError):
    """No such Triton can be had here, or what it says cannot be kept."""


@dataclass(frozen=True, slots=True)
class Toolchain:
    """A Python interpreter and the version of Triton it imports."""

    python: Path
    version: str


def cache_folder() -> Path:
    """Where compiled facts and other Tritons are kept between runs."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "decode-ab"


def unusable(why: object) -> str:
    """That the cache folder cannot be written, and how to have another."""
    return f"the cache {cache_folder()} cannot be used: {why}; free or repair it, or set XDG_CACHE_HOME"


def installed_toolchain() -> Toolchain:
    """This interpreter's own Triton."""
    try:
        return Toolchain(Path(sys.executable), importlib.metadata.version("triton"))
    except importlib.metadata.PackageNotFoundError as error:
        raise ToolchainError("triton is not installed here; install requirements/gate.lock") from error


def is_version(text: str) -> bool:
    """Whether it names a version of Triton that may be asked for; the installed one may be of another form."""
    return text == _installed() or re.fullmatch(r"\d+(\.\d+){1,2}", text) is not None


def toolchain_of(version: str | None = None) -> Toolchain:
    """Triton of that version, installed into the cache folder at first use (which needs the package index)."""
    if version is None or version == _installed():
        return installed_toolchain()
    if not is_version(version):
        raise ToolchainError(f"{version!r} is no Triton version; write for example 3.6.0")
    folder = cache_folder() / f"triton-{version}"
    if not (folder / ".ready").is_file():
        _make(folder, version)
    return Toolchain(folder / "bin" / "python", version)


def _installed() -> str | None:
    try:
        return importlib.metadata.version("triton")
    except importlib.metadata.PackageNotFoundError:
        return None


def _make(folder: Path, version: str) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ToolchainError(unusable(error.strerror)) from error
    python = folder / "bin" / "python"
    _run([sys.executable, "-m", "venv", "--without-pip", str(folder)], version)
    # Triton 3.6 imports nothing of its declared dependencies unless a kernel runs.
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps"]
    _run([*pip, f"triton=={version}"], version)
    (folder / ".ready").touch()


def _run(command: list[str], version: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        last = (done.stderr or done.stdout).strip().splitlines()[-1:]
        raise ToolchainError(f"cannot install Triton {version}: {' '.join(last)}; is the package index reachable?")
