"""The autotuned kernels of a pinned SGLang release, and pristine copies of their files to start a replacement from."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from app.errors import DecoratorUnknownError, KernelAmbiguousError
from app.kernel.autotune import find_autotune
from app.kernel.source import parse_source
from app.kernel.upstream import Base, default_cache, fetch_wheel, member_base, pinned
from app.records import write_text


@dataclass(frozen=True, slots=True)
class AutotunedKernel:
    """A kernel with an autotune decorator; configs: how many it lists, None where code makes the list."""

    kernel: str
    module: str
    configs: int | None
    pristine: Path


def autotuned_kernels(release: str | None = None, cache: Path | None = None) -> list[AutotunedKernel]:
    """Every kernel of the release that a variant can target, by module; lays their files out as pristine copies.

    Raises NotReadyError offline without a cached wheel.
    """
    cache = cache or default_cache()
    return [kernel for base in _bases(release, cache) for kernel in _kernels(base, cache)]


def lay_out(base: Base, cache: Path | None = None) -> Path:
    """Writes a pristine file to copy from into the cache and returns its path; patching never reads it back."""
    path = (cache or default_cache()) / "pristine" / base.release / base.relative_path
    write_text(path, base.text)
    return path


def _bases(release: str | None, cache: Path) -> Iterator[Base]:
    pin = pinned(release)
    wheel = fetch_wheel(pin, cache)
    with zipfile.ZipFile(wheel) as archive:
        names = sorted(n for n in archive.namelist() if n.endswith(".py") and b"triton.autotune" in archive.read(n))
    yield from (member_base(pin, wheel, name) for name in names)


def _kernels(base: Base, cache: Path) -> Iterator[AutotunedKernel]:
    source = parse_source(base.text)
    for name in dict.fromkeys(function.name for function in source.functions):
        try:
            autotune = find_autotune(source, name)
        except (DecoratorUnknownError, KernelAmbiguousError):
            continue
        try:
            configs = len(autotune.read_configs())
        except DecoratorUnknownError:
            configs = None
        yield AutotunedKernel(name, base.module, configs, lay_out(base, cache))
