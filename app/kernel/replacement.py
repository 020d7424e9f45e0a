"""Replacement kernel files: only a regular Python file of this repository may stand in for SGLang's."""

from __future__ import annotations

from pathlib import Path

from app.errors import PatchError

LIMIT_BYTES = 4 * 1024 * 1024


def replacement_fault(root: Path, file: Path) -> str | None:
    """Why `file` (relative to the repository `root`) may not replace a kernel file; None when it may."""
    if file.is_absolute() or ".." in file.parts:
        return f"{file.as_posix()!r} must be a path inside the repository, without '..'"
    if "\0" in str(file) or file.suffix != ".py":
        return f"{file.as_posix()!r} must be a Python file (.py)"
    try:
        place = (root / file).resolve(strict=True)
    except (OSError, RuntimeError):
        return f"{file.as_posix()!r} is not a file of the repository"
    if not place.is_relative_to(root.resolve()):
        return f"{file.as_posix()!r} leads out of the repository, to {place}"
    if not place.is_file():
        return f"{file.as_posix()!r} is not a file of the repository"
    if place.stat().st_size > LIMIT_BYTES:
        return f"{file.as_posix()!r} is larger than {LIMIT_BYTES // 2**20} MiB"
    return None


def read_replacement(root: Path, file: Path) -> bytes:
    """The bytes of a replacement file; PatchError says why it may not be used."""
    if fault := replacement_fault(root, file):
        raise PatchError(f"replacement file {fault}")
    try:
        return (root / file).read_bytes()
    except OSError as error:
        raise PatchError(f"replacement file {file.as_posix()!r} cannot be read: {error.strerror}") from error
