"""Makes what must travel to a GPU machine without network: SGLang, the load driver and the transfer library, trimmed.

Nothing is compiled here: the first start there compiles for minutes, and what it compiled can travel the next time.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from app import arguments
from app.engine.sglang.installation import DESCRIPTION
from app.engine.sglang.packing import pack_tree
from app.errors import NotReadyError, UsageError
from app.kernel.upstream import default_cache, fetch_base, pinned
from app.records import write_json, write_text
from app.yaml_file import read_yaml

SPEC = Path(__file__).with_name("travel.yaml")
MIB = 1 << 20
# pip matches a platform tag exactly, so every one that the machine there can load is named.
GLIBC_MINORS = (39, 35, 34, 31, 28, 27, 26, 24, 17, 12, 5)
OLDER = ("manylinux2014_x86_64", "manylinux2010_x86_64", "manylinux1_x86_64", "linux_x86_64")
STRIP_OVER_BYTES = 300_000
# Bundles that take the pristine kernel file along, which the lab would else fetch.
WITH_BASE = ("server", "tests")
# Folders under the prepared home: import path of the servers, caches that a server fills and that may travel back.
CACHES: Mapping[str, str] = {
    "TVM_FFI_CACHE_DIR": "{home}/caches/tvm-ffi",
    "TILELANG_CACHE_DIR": "{home}/caches/tilelang",
    "FLASHINFER_WORKSPACE_BASE": "{home}/caches/flashinfer",
}
_STUB = '''"""Stands for a package that is imported at start and used by nothing here."""


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    return type(name, (), {"__init__": lambda self, *a, **k: None})
'''


@dataclass(frozen=True, slots=True)
class Bundle:
    """One folder that travels in one call. drop, keep: path patterns; keep wins. stubs: modules that are made up."""

    name: str
    limit_mib: float
    folder: str
    wheels: Mapping[str, str]
    drop: tuple[str, ...]
    keep: tuple[str, ...]
    links: Mapping[str, str]
    stubs: tuple[str, ...]
    strip: tuple[str, ...]

    def kept(self, path: str) -> bool:
        """Whether an installed path travels."""
        if path in self.links or path.endswith((".pyc", ".pyi", ".a", ".o")):
            return False
        return any(fnmatchcase(path, p) for p in self.keep) or not any(fnmatchcase(path, p) for p in self.drop)


def read_bundles(spec: Path = SPEC) -> tuple[str, dict[str, Bundle]]:
    """Python version there and the bundles by name."""
    data: Any = read_yaml(spec).literal()
    return str(data["python"]), {n: _bundle(n, b) for n, b in data["bundles"].items()}


def prepare(names: Sequence[str], out: Path, caches: Path | None, say: Callable[[str], None]) -> dict[str, float]:
    """Writes OUT/<bundle>/ for each name; packed size in MiB by name. caches: an archive that a server filled there.

    UsageError for an unknown bundle; NotReadyError when a wheel cannot be had or a bundle is over its limit.
    """
    python, bundles = read_bundles()
    for name in names:
        if name not in bundles:
            raise UsageError.unknown("bundle", name, list(bundles))
    return {name: _prepared(bundles[name], python, out / name, caches, say) for name in names}


def download_command(wheels: Mapping[str, str], python: str, folder: Path) -> list[str]:
    """The pip command that fetches exactly these wheels for the machine there, whatever runs here."""
    tag = "cp" + python.replace(".", "")
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--quiet", "--no-input"]
    command += ["--disable-pip-version-check", "--dest", str(folder), "--python-version", python]
    command += ["--implementation", "cp", *(word for abi in (tag, "abi3", "none") for word in ("--abi", abi))]
    platforms = [*(f"manylinux_2_{minor}_x86_64" for minor in GLIBC_MINORS), *OLDER]
    command += [word for platform in platforms for word in ("--platform", platform)]
    return command + [f"{name}=={version}" for name, version in wheels.items()]


def installed_path(member: str) -> str | None:
    """Where a wheel's member is installed; None for scripts and headers."""
    head, _, rest = member.partition("/")
    if not head.endswith(".data"):
        return member
    kind, _, path = rest.partition("/")
    return path if kind in ("purelib", "platlib") and path else None


def _bundle(name: str, data: Mapping[str, Any]) -> Bundle:
    return Bundle(
        name=name,
        limit_mib=float(data["limit_mib"]),
        folder=str(data["folder"]),
        wheels={str(k): str(v) for k, v in data["wheels"].items()},
        drop=tuple(data["drop"]),
        keep=tuple(data["keep"]),
        links=dict(data["links"]),
        stubs=tuple(data["stubs"]),
        strip=tuple(data["strip"]),
    )


def _prepared(bundle: Bundle, python: str, out: Path, caches: Path | None, say: Callable[[str], None]) -> float:
    wheels = fetch_wheels(bundle, python, default_cache() / "wheels" / "travel", say)
    stage = default_cache() / "travel" / bundle.name
    shutil.rmtree(stage, ignore_errors=True)
    say(f"{bundle.name}: unpacking {len(wheels)} wheels")
    for wheel in wheels:
        _lay_out(wheel, bundle, stage / bundle.folder)
    _links_and_stubs(bundle, stage)
    if bundle.name == "server":
        _describe(stage, bundle, caches)
    if bundle.name in WITH_BASE:
        _keep_base(stage, bundle.wheels.get("sglang"))
    say(f"{bundle.name}: packing (minutes)")
    packed = pack_tree(stage, out, facts={"bundle": bundle.name, "wheels": dict(bundle.wheels)})
    if packed > bundle.limit_mib * MIB:
        raise NotReadyError(
            f"{out} has {packed / MIB:.1f} MiB, {bundle.limit_mib:g} may travel; drop more in {SPEC.name}"
        )
    say(f"{bundle.name}: {packed / MIB:.2f} of {bundle.limit_mib:g} MiB in {out}")
    return packed / MIB


def fetch_wheels(bundle: Bundle, python: str, folder: Path, say: Callable[[str], None]) -> list[Path]:
    """The bundle's wheels in the cache, fetched when missing."""
    folder.mkdir(parents=True, exist_ok=True)
    missing = {n: v for n, v in bundle.wheels.items() if find_wheel(folder, n, v) is None}
    if missing:
        say(f"{bundle.name}: fetching {len(missing)} wheels")
        done = subprocess.run(download_command(missing, python, folder), capture_output=True, text=True, check=False)
        if done.returncode != 0:
            last = [line for line in done.stderr.splitlines() if line.strip()][-1:] or ["pip said nothing"]
            raise NotReadyError(f"{', '.join(missing)} could not be fetched ({last[0].strip()}); check the network")
    found = {name: find_wheel(folder, name, version) for name, version in bundle.wheels.items()}
    if lost := [name for name, path in found.items() if path is None]:
        raise NotReadyError(f"pip left no whole wheel of {', '.join(lost)} in {folder}; empty it and try again")
    return [path for path in found.values() if path is not None]


def find_wheel(folder: Path, name: str, version: str) -> Path | None:
    """A whole wheel of exactly this version."""
    wanted = name.replace("-", "_").replace(".", "_").lower()
    for path in sorted(folder.glob("*.whl")):
        parts = path.name.split("-")
        if parts[0].replace(".", "_").lower() == wanted and parts[1] == version and zipfile.is_zipfile(path):
            return path
    return None


def _lay_out(wheel: Path, bundle: Bundle, site: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        for member in archive.infolist():
            path = None if member.is_dir() else installed_path(member.filename)
            if path is None or not bundle.kept(path):
                continue
            target = site / path
            target.parent.mkdir(parents=True, exist_ok=True)
            with archive.open(member) as source, target.open("wb") as out:
                shutil.copyfileobj(source, out, MIB)
            target.chmod(0o755 if (member.external_attr >> 16) & 0o111 else 0o644)
            if _strippable(path, member.file_size, bundle.strip):
                _strip(target)


def _strippable(path: str, size: int, patterns: Iterable[str]) -> bool:
    return ".so" in Path(path).name and size > STRIP_OVER_BYTES and any(fnmatchcase(path, p) for p in patterns)


def _strip(library: Path) -> None:
    slim = library.with_name(f"{library.name}.slim")
    try:
        done = subprocess.run(["strip", "-s", "-o", str(slim), str(library)], capture_output=True, check=False)
    except OSError as e:
        raise NotReadyError(f"strip is not here ({e.strerror}); install binutils") from e
    # A library whose layout was patched may be refused or grow; it travels as it is.
    if done.returncode == 0 and slim.stat().st_size < library.stat().st_size:
        slim.replace(library)
        library.chmod(0o755)
    slim.unlink(missing_ok=True)


def _links_and_stubs(bundle: Bundle, stage: Path) -> None:
    for link, to in bundle.links.items():
        place = stage / bundle.folder / link
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(to)
    parents = {name.partition(".")[0] for name in bundle.stubs if "." in name}
    for name in bundle.stubs:
        place = stage / "stubs" / Path(*name.split("."))
        write_text(place / "__init__.py" if name in parents else place.with_suffix(".py"), _STUB)


def _describe(stage: Path, bundle: Bundle, caches: Path | None) -> None:
    release = bundle.wheels["sglang"]
    told = {"version": release, "paths": [bundle.folder, "stubs", "pd"], "environment": dict(CACHES)}
    write_json(stage / DESCRIPTION, told)
    if caches is not None:
        shutil.unpack_archive(caches, stage, "gztar", filter="data")


def _keep_base(stage: Path, release: str | None) -> None:
    """Puts the pristine kernel file under the name that the lab's own cache gives it."""
    fetch_base(release)
    pin = pinned(release)
    kept = Path("files") / pin.file_sha256 / Path(pin.file).name
    (stage / "cache" / "decode-ab" / kept).parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(default_cache() / kept, stage / "cache" / "decode-ab" / kept)


def _readable(caches: Path) -> Path:
    """The archive, looked through to its end before minutes are spent on what it is to travel with."""
    try:
        with tarfile.open(caches, "r:gz") as archive:
            archive.getmembers()
    except (OSError, EOFError, zlib.error, tarfile.TarError) as e:
        said = e.strerror if isinstance(e, OSError) and e.strerror else str(e)
        raise UsageError(f"--caches {caches} is no .tar.gz that can be read ({said}); name one or leave it out") from e
    return caches


def show_preparation(bundles: str, out: str, caches: str) -> None:
    """Prepares the named bundles and prints their sizes."""
    names = arguments.names(bundles, "bundles", "server,lab")
    archive = _readable(Path(caches)) if caches else None
    sizes = prepare(names, Path(out), archive, lambda line: print(line, flush=True))
    print(json.dumps({name: round(mib, 2) for name, mib in sizes.items()}))
