"""Packs a tree into a few archives that unpack side by side, and unpacks them: needs the standard library alone.

There, `python3 -m app.engine.sglang.packing HOME FOLDER...` checks, unpacks, makes an interpreter for the lab that sees
that machine's packages and the carried ones, and prints what to export.
"""

from __future__ import annotations

import argparse
import compileall
import hashlib
import io
import json
import lzma
import os
import shlex
import shutil
import sys
import tarfile
import venv
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from site import getsitepackages
from typing import Any

MANIFEST = "manifest.json"
PARTS = 6
DICTIONARY_BYTES = 96 << 20
# Any fixed time: the same tree gives the same bytes.
EPOCH = 1_700_000_000


def pack_tree(tree: Path, out: Path, facts: Mapping[str, Any], processes: int = 2) -> int:
    """Writes the archives and their manifest into `out`; bytes of all together."""
    out.mkdir(parents=True, exist_ok=True)
    for old in [*out.glob("*.txz"), *out.glob(MANIFEST)]:
        old.unlink()
    jobs = [(tree, out / f"part-{n:02d}.txz", names, code) for n, (code, names) in enumerate(_shares(tree))]
    with ProcessPoolExecutor(processes) as pool:
        parts = list(pool.map(_write, jobs))
    manifest = {"parts": parts, **facts}
    (out / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n")
    return sum(int(part["bytes"]) for part in parts) + (out / MANIFEST).stat().st_size


def unpack(folders: Iterable[Path], home: Path) -> int:
    """Checks every archive against its manifest and unpacks it under `home`; bytes read. ValueError: a damaged one."""
    jobs = []
    for folder in folders:
        manifest = json.loads((folder / MANIFEST).read_text())
        jobs += [(folder / part["name"], part["sha256"], home) for part in manifest["parts"]]
    jobs.sort(key=lambda job: -job[0].stat().st_size)
    with ProcessPoolExecutor(min(len(jobs), os.cpu_count() or 1)) as pool:
        return sum(pool.map(_read, jobs))


def exports(home: Path) -> dict[str, str]:
    """What the lab's processes need in their environment there."""
    cuda = cuda_home()
    return {
        **({"CUDA_HOME": cuda} if cuda else {}),
        "SGLANG_HOME": str(home),
        "SGLANG_PYTHON": sys.executable,
        "XDG_CACHE_HOME": str(home / "cache"),
        "LAB_PYTHON": str(home / "venv" / "bin" / "python"),
    }


def cuda_home() -> str:
    """Folder of CUDA's headers and compiler, without which SGLang cannot compile; empty when there is none."""
    nvcc = shutil.which("nvcc")
    places = [os.environ.get("CUDA_HOME", ""), str(Path(nvcc).resolve().parents[1]) if nvcc else "", "/usr/local/cuda"]
    return next((p for p in places if p and (Path(p) / "include" / "cuda_runtime.h").is_file()), "")


def make_interpreter(home: Path) -> Path:
    """A virtual environment whose packages are this interpreter's and the carried ones, in this order."""
    folder = home / "venv"
    venv.create(folder, with_pip=False, clear=True)
    (site,) = folder.glob("lib/python3*/site-packages")
    carried = [str(home / name) for name in ("lab", "site", "pd")]
    (site / "carried.pth").write_text("\n".join([*getsitepackages(), *carried]) + "\n")
    return folder / "bin" / "python"


def main(given: Sequence[str] | None = None) -> int:
    """Unpacks from the command line; the export lines alone go to standard output."""
    parser = argparse.ArgumentParser(prog="python3 -m app.engine.sglang.packing", description=__doc__)
    parser.add_argument("home", type=Path)
    parser.add_argument("folders", type=Path, nargs="*", help="none: only print what to export")
    chosen = parser.parse_args(given)
    home = chosen.home.absolute()
    if chosen.folders:
        _unpack_and_compile(chosen.folders, home)
    print("\n".join(f"export {key}={shlex.quote(value)}" for key, value in exports(home).items()))
    return 0


def _unpack_and_compile(folders: Sequence[Path], home: Path) -> None:
    read = unpack(folders, home)
    # Each variant's copy takes the bytecode along, so no start compiles the package anew.
    compileall.compile_dir(str(home), quiet=2, workers=0)
    make_interpreter(home)
    print(f"unpacked {read / 2**20:.1f} MiB into {home}", file=sys.stderr)


def _shares(tree: Path) -> list[tuple[bool, list[str]]]:
    """Paths in shares of like size: machine code apart from text, since each packs best among its kind."""
    paths = [
        Path(folder) / name for folder, folders, names in os.walk(tree) for name in (*names, *_linked(folder, folders))
    ]
    shares = []
    for code, count in ((False, 2), (True, PARTS - 2)):
        bins: list[tuple[int, list[str]]] = [(0, []) for _ in range(count)]
        mine = [(_size(p), p.relative_to(tree).as_posix()) for p in paths if (".so" in p.name) == code]
        for size, name in sorted(mine, reverse=True):
            least = min(range(count), key=lambda n: bins[n][0])
            bins[least] = (bins[least][0] + size, [*bins[least][1], name])
        shares += [(code, sorted(names, key=_kind)) for _, names in bins if names]
    return shares


def _kind(name: str) -> tuple[str, str, str]:
    # The same file in two places packs to once when both stand side by side.
    path = Path(name)
    return path.suffix, path.name, name


def _linked(folder: str, folders: list[str]) -> list[str]:
    return [name for name in folders if (Path(folder) / name).is_symlink()]


def _size(path: Path) -> int:
    return 512 if path.is_symlink() else path.stat().st_size + 512


def _write(job: tuple[Path, Path, list[str], bool]) -> dict[str, Any]:
    tree, path, names, code = job
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as tar:
        for name in names:
            tar.add(tree / name, name, recursive=False, filter=_anonymous)
    filters: list[dict[str, Any]] = [{"id": lzma.FILTER_X86}] if code else []
    filters.append({"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "dict_size": DICTIONARY_BYTES})
    data = lzma.compress(raw.getvalue(), filters=filters)
    path.write_bytes(data)
    return {"name": path.name, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def _anonymous(info: tarfile.TarInfo) -> tarfile.TarInfo:
    info.uid = info.gid = 0
    info.uname = info.gname = ""
    info.mtime = EPOCH
    return info


def _read(job: tuple[Path, str, Path]) -> int:
    path, wanted, home = job
    data = path.read_bytes()
    if (found := hashlib.sha256(data).hexdigest()) != wanted:
        raise ValueError(f"{path} has SHA-256 {found}, its manifest says {wanted}; carry it again")
    with tarfile.open(fileobj=io.BytesIO(lzma.decompress(data))) as tar:
        # Other parts unpack beside this one, and tarfile takes a folder that they made meanwhile for an error.
        for name in {tarfile.tar_filter(member, str(home)).name for member in tar}:
            (home / name).parent.mkdir(parents=True, exist_ok=True)
        tar.extractall(home, filter="tar")
    return len(data)


if __name__ == "__main__":
    sys.exit(main())
