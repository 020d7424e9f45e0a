"""Triton's compile results for a variant, made ahead by the very Triton that will look for them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from app.environment import ROOT
from app.errors import GateError
from app.kernel.launched import read_launched
from kernels.geometry import Geometry, default_geometry
from kernels.signature import load_signature

# What a launch and a profiler read; the intermediate forms are ten times as large and read by nobody.
KEPT = (".cubin", ".json", ".ptx")
# Bytes by path inside Triton's cache folder.
Prebuilt = Mapping[str, bytes]
MOST_PROCESSES = 8
TIMEOUT_S = 600
# What can change a key or an import: the server's, not the caller's, has to hold.
SETTINGS = ("TRITON_", "PTXAS_", "PYTHON")


@dataclass(frozen=True, slots=True)
class Launch:
    """One specialisation that the host code launches: arguments as (name, type, divisible by 16), in order."""

    kernel: str
    arguments: list[tuple[str, str, bool]]
    constants: Mapping[str, Any]
    options: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Compiler:
    """A Triton. sha256: of all of it, its assembler and what of its environment a cache key holds, for one target."""

    version: str
    sha256: str


@dataclass(frozen=True, slots=True)
class Server:
    """The interpreter that will look for the entries, and what its environment holds of Python's and Triton's settings.

    environment: None for this process's own, as it is.
    """

    python: Path = Path(sys.executable)
    environment: Mapping[str, str] | None = None

    def ask(self, request: Mapping[str, Any], cache: Path) -> Compiler:
        """Compiles a request's launches into the cache folder; GateError says why not."""
        own = dict(os.environ)
        if self.environment is not None:
            own = {k: v for k, v in own.items() if not k.startswith(SETTINGS)} | dict(self.environment)
        try:
            done = subprocess.run(
                [str(self.python), "-m", "kernels.prebuild"],
                input=json.dumps(request), capture_output=True, text=True, timeout=TIMEOUT_S, cwd=ROOT,
                env=own | {"TRITON_CACHE_DIR": str(cache)}, check=False,
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as e:
            raise GateError(f"{self.python} compiled nothing ahead ({e}); leave it to the server") from e
        if done.returncode != 0:
            last = " ".join(done.stderr.strip().splitlines()[-1:]) or "it said nothing"
            raise GateError(f"{self.python} compiled nothing ahead: {last}")
        return Compiler(**json.loads(done.stdout.splitlines()[-1]))

    def compiler(self, arch: int) -> Compiler:
        """The Triton of this interpreter, as it compiles for an arch."""
        return self.ask({"arch": arch, "launches": []}, Path(tempfile.gettempdir()))


def prebuild(
    text: str,
    kernel: str,
    path: Path,
    arch: int,
    rank: Geometry | None = None,
    server: Server | None = None,
) -> Prebuilt:
    """Cache entries of every configuration that the autotuner or the table may launch, in every use of the kernel.

    path: where the file `text` will lie for the server; the entries' debug information holds it, so it is the same in
    every build. Configurations that Triton drops silently leave no entry here either.
    """
    found = launches(text, kernel, arch, rank or default_geometry())
    with tempfile.TemporaryDirectory() as folder:
        _compile(
            {"text": text, "path": str(path), "first": kernel, "arch": arch}, found, server or Server(), Path(folder)
        )
        files = [p for p in sorted(Path(folder).rglob("*")) if p.suffix in KEPT]
        return {str(p.relative_to(folder)): _portable(p) for p in files}


def _compile(file: Mapping[str, Any], found: Sequence[Launch], server: Server, folder: Path) -> None:
    processes = min(len(found), os.cpu_count() or 1, MOST_PROCESSES)
    requests = [{**file, "launches": [asdict(x) for x in found[n::processes]]} for n in range(processes)]
    with ThreadPoolExecutor(processes) as pool:
        list(pool.map(lambda request: server.ask(request, folder), requests))


def _portable(file: Path) -> bytes:
    # Group files hold absolute paths of their members, here those of a temporary folder.
    if not file.name.startswith("__grp__"):
        return file.read_bytes()
    members = json.loads(file.read_bytes())["child_paths"]
    kept = [name for name in sorted(members) if Path(name).suffix in KEPT]
    return json.dumps({"child_paths": {name: name for name in kept}}).encode()


def launches(text: str, kernel: str, arch: int, rank: Geometry) -> list[Launch]:
    """Every launch, each once, that the signature files and the configurations in the file give, companions' too."""
    found = list[Launch]()
    for geometry in load_signature(kernel).launched_on(rank, text):
        found += [launch for launch in _launches(text, kernel, arch, geometry) if launch not in found]
    return found


def _launches(text: str, kernel: str, arch: int, geometry: Geometry) -> Iterator[Launch]:
    launched = read_launched(text, kernel, arch, geometry)
    configs = launched.listed + launched.chosen
    for signature, config in [*((launched.signature, config) for config in configs), *launched.companions(configs)]:
        for use in (*signature.uses, *signature.further):
            arguments, constants = use.bind(text, geometry, config)
            yield Launch(signature.kernel, arguments, constants, use.options(text, config))
