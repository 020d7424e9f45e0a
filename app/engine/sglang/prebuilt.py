"""A variant's kernels compiled before its server starts, by the server's own Triton, and put where it looks."""

from __future__ import annotations

import errno
import hashlib
import json
import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from app.engine.sglang.environment import engine_environment
from app.engine.sglang.installation import Installation
from app.engine.sglang.served import Served
from app.environment import ROOT
from app.errors import ProofError, UsageError
from app.gate.prebuilt import Compiler, Launch, Server, launches, prebuild
from app.gate.seeding import Seeded, seed
from app.kernel.placed import PlacedKernel
from app.kernel.upstream import default_cache
from app.records import read_json, write_json
from kernels.geometry import Geometry

INDEX = "index.json"


@dataclass(frozen=True, slots=True)
class Ahead:
    """What was put in place before a start. compile_s: what compiling took just now, 0 where it was kept."""

    compiler: Compiler
    launches: int
    compile_s: float
    seeded: Seeded

    def to_json(self) -> dict[str, Any]:
        """Plain data for proof.json."""
        return {
            "triton": self.compiler.version,
            "triton_sha256": self.compiler.sha256,
            "launches": self.launches,
            "compile_s": round(self.compile_s, 2),
            **asdict(self.seeded),
        }


class Prebuilder:
    """Compiles each variant once for an interpreter, an arch and a model; keeps the results in the lab's cache."""

    def __init__(self, served: Served, installation: Installation, rank: Geometry, arch: int, file: str) -> None:
        """rank: one's attention; file: the kernel's path in the package, which entries' debug information repeats."""
        self._rank, self._arch, self._file = rank, arch, Path(file)
        environment = engine_environment(served, installation, Path("unused"))
        self._server = Server(installation.python, environment | {"PYTHONPATH": ":".join(map(str, installation.paths))})
        self._compiler: Compiler | None = None

    def put(self, kernel: PlacedKernel, folder: Path) -> Ahead:
        """Puts the kernel's entries into Triton's cache folder of the server that is about to start."""
        if self._compiler is None:
            # Asked anew in each session: another Triton under the same version would look for other keys.
            self._compiler = self._server.compiler(self._arch)
        text, name = kernel.path.read_text(encoding="utf-8"), str(kernel.kernel)
        found = self._launches(text, name)
        kept, began = self._kept(text, found, self._compiler), time.monotonic()
        new = not (kept / INDEX).is_file()
        if new:
            entries = prebuild(text, name, self._file, self._arch, self._rank, self._server)
            _keep(kept, entries, self._compiler)
        seconds = time.monotonic() - began if new else 0.0
        index: Mapping[str, str] = read_json(kept / INDEX)["files"]
        seeded = seed(index, lambda file: _checked(kept / file, index[file]), folder)
        return Ahead(self._compiler, len(found), seconds, seeded)

    def _launches(self, text: str, kernel: str) -> list[Launch]:
        try:
            return launches(text, kernel, self._arch, self._rank)
        except ValueError as e:
            raise UsageError(f"{kernel} cannot be compiled ahead: {e}; prebuilt=false leaves it to the server") from e

    def _kept(self, text: str, found: Sequence[Launch], compiler: Compiler) -> Path:
        how = hashlib.sha256((ROOT / "kernels" / "prebuild.py").read_bytes()).hexdigest()
        told = [text, str(self._file), self._arch, compiler.sha256, how, [asdict(launch) for launch in found]]
        return default_cache() / "prebuilt" / hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:32]


def _keep(folder: Path, entries: Mapping[str, bytes], compiler: Compiler) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".made-") as made:
        whole = Path(made) / folder.name
        for name, data in entries.items():
            (whole / name).parent.mkdir(parents=True, exist_ok=True)
            (whole / name).write_bytes(data)
        digests = {name: hashlib.sha256(data).hexdigest() for name, data in entries.items()}
        write_json(whole / INDEX, {"compiler": asdict(compiler), "files": digests})
        _put_first(whole, folder)


def _put_first(whole: Path, folder: Path) -> None:
    """Another lab may do the same at the same time: what is there first stays, for its lab reads it already."""
    try:
        whole.replace(folder)
    except OSError as e:
        if e.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        if not (folder / INDEX).is_file():
            # Somebody took its index away, without which nobody reads it.
            shutil.rmtree(folder)
            whole.replace(folder)


def _checked(path: Path, sha256: str) -> bytes:
    data = path.read_bytes() if path.is_file() else b""
    if hashlib.sha256(data).hexdigest() != sha256:
        raise ProofError(f"prebuilt cache file {path} is missing or changed; remove {path.parents[1]}")
    return data
