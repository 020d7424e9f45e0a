"""A copy of SGLang's package that one variant's servers import, with its kernel file in place by hash.

The package that was found is read and never written: every variant has a copy of its own, thrown away afterwards.
"""

from __future__ import annotations

import hashlib
import shutil
from dataclasses import dataclass
from pathlib import Path

from app.errors import NotReadyError, ProofError
from app.kernel.placed import PlacedKernel
from app.kernel.upstream import Release, pristine
from app.records import write_text

PLUGIN = Path(__file__).with_name("plugin") / "decode_ab_hooks.py"
REPLAY = PLUGIN.with_name("decode_ab_replay.py")
PLUGIN_NAME = "decode_ab"


@dataclass(frozen=True, slots=True)
class PrivatePackage:
    """A folder for the import path. kernel_file: the file in it that holds the variant's kernel."""

    folder: Path
    kernel_file: Path
    sha256: str

    def check(self) -> None:
        """Raises ProofError when the file is no longer what was put there."""
        if (found := _sha256(self.kernel_file)) != self.sha256:
            raise ProofError(f"{self.kernel_file} has SHA-256 {found}, {self.sha256} was put there; start again")

    def discard(self) -> None:
        """Removes the copy."""
        shutil.rmtree(self.folder, ignore_errors=True)


def make_private(package: Path, pin: Release, kernel: PlacedKernel, folder: Path) -> PrivatePackage:
    """Copies the package under `folder`, checks that its kernel file is the pinned one and puts the variant's there.

    UnknownBaseError when the found package was changed, ProofError when the bytes on disk are not the placed ones.
    """
    inside = Path(*Path(pin.file).parts[1:])
    pristine((package / inside).read_bytes(), pin, str(package / inside))
    _copy(package, folder / package.name)
    file = folder / package.name / inside
    # Bytecode of the pristine file would be looked at before the new source.
    for stale in (file.parent / "__pycache__").glob(f"{file.stem}.*.pyc"):
        stale.unlink()
    file.unlink()
    file.write_bytes(kernel.path.read_bytes())
    private = PrivatePackage(folder, file, kernel.sha256)
    private.check()
    return private


def write_plugin(folder: Path) -> Path:
    """A folder whose one distribution names our hooks as a plugin of SGLang's; returns it for the import path."""
    facts = folder / "decode_ab_hooks-1.dist-info"
    for module in (PLUGIN, REPLAY):
        write_text(folder / module.name, module.read_text(encoding="utf-8"))
    write_text(facts / "METADATA", "Metadata-Version: 2.1\nName: decode-ab-hooks\nVersion: 1\n")
    write_text(facts / "entry_points.txt", f"[sglang.srt.plugins]\n{PLUGIN_NAME} = {PLUGIN.stem}:activate\n")
    return folder


def _copy(package: Path, to: Path) -> None:
    shutil.rmtree(to, ignore_errors=True)
    try:
        shutil.copytree(package, to)
    except OSError as e:
        raise NotReadyError(f"{package} could not be copied to {to} ({e}); free some space") from e


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
