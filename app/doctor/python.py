"""The Python side: interpreter, environment, lock files, SGLang's wheel, and the gate's compiler."""

from __future__ import annotations

import importlib.metadata
import re
import sys
from pathlib import Path

from app.doctor.finding import Finding, fail, ok, warn
from app.doctor.host import Host
from app.environment import ROOT, is_installed
from app.kernel.upstream import is_cached, pinned, versions_command

WANTED = (3, 11)
GATE_LOCK = ROOT / "requirements" / "gate.lock"


def interpreter(_: Host) -> Finding:
    """Python itself."""
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info < WANTED:
        return fail(
            f"Python {version}", "install Python 3.11 or newer, or name one: PYTHON=/path/to/python3 ./lab doctor"
        )
    return ok(f"Python {version} at {sys.executable}")


def virtual_environment(_: Host) -> Finding:
    """Whether extras can be installed without touching the system."""
    if sys.prefix == sys.base_prefix:
        return warn("no virtual environment is active", "run tasks through ./lab, which makes .venv")
    return ok(sys.prefix)


def locks(_: Host) -> Finding:
    """Whether the environment was made from the lock files as they are now."""
    if not is_installed("base"):
        return warn(
            "the environment was not made from requirements/base.lock as it is", "run ./lab doctor; it renews .venv"
        )
    if not is_installed("gate"):
        return warn("base.lock is installed, gate.lock is not", "run ./lab check --variant pinned once while connected")
    return ok("base.lock and gate.lock are installed as they are")


def wheel(host: Host) -> Finding:
    """SGLang's wheel, from which every variant is patched: cached, or to be had."""
    pin = pinned(host.settings.sglang_release)
    if is_cached(pin, host.cache):
        return ok(f"{pin.wheel} in {host.cache / 'wheels'}")
    by_hand = f"set pip's index (PIP_INDEX_URL), or put {pin.wheel} into {host.cache / 'wheels'}"
    asked = host.run(versions_command(pin))
    if asked.code != 0:
        return fail(f"{pin.wheel} is not cached and the package index gives none: {asked.said}", by_hand)
    if not re.search(rf"(?<![\w.]){re.escape(pin.version)}(?![\w.])", asked.out):
        return fail(f"{pin.wheel} is not cached and the package index has no {pin.version}", by_hand)
    return warn("not cached; the package index has it", "invoke diff --variant pinned fetches it now")


def triton(_: Host) -> Finding:
    """The compiler of the gate, which needs no GPU."""
    wanted = locked_version(GATE_LOCK, "triton")
    try:
        found = importlib.metadata.version("triton")
    except importlib.metadata.PackageNotFoundError:
        return warn(
            "Triton is not installed", "run ./lab check --variant pinned once while connected; it installs the gate"
        )
    if found != wanted:
        return warn(
            f"Triton {found}, locked is {wanted}", "rm .venv/gate.sha256; the next ./lab check installs the locked one"
        )
    return ok(f"Triton {found}")


def locked_version(lock: Path, package: str) -> str:
    """The version that a lock file pins a package to."""
    found = re.search(rf"^{package}==(\S+)", lock.read_text(encoding="utf-8"), re.MULTILINE)
    return found.group(1) if found else "none"
