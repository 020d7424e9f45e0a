"""Where SGLang itself is: in a Python environment, or in a folder that was prepared for a machine without network."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from app.errors import NotReadyError, UsageError
from app.records import read_json

# A prepared folder's own description; its paths are relative to it.
DESCRIPTION = "installation.json"
# Asked of another interpreter: finding the top package imports nothing of it.
_ASK = """
import importlib.metadata, importlib.util, json
spec = importlib.util.find_spec("sglang")
places = list(spec.submodule_search_locations or []) if spec else []
print(json.dumps({"places": places, "version": importlib.metadata.version("sglang") if places else ""}))
"""


@dataclass(frozen=True, slots=True)
class Installation:
    """An SGLang that can be started. package: its folder `sglang`, which is never written to.

    paths: import path of its servers, in order. environment: variables it needs, such as caches that travel with it.
    """

    python: Path
    package: Path
    version: str
    paths: tuple[Path, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    home: Path | None = None


def find_installation(release: str, environ: Mapping[str, str] | None = None) -> Installation:
    """The SGLang that SGLANG_HOME (a prepared folder) or SGLANG_PYTHON (an interpreter) names.

    NotReadyError when there is none, UsageError when it is of another release than asked for.
    """
    given = os.environ if environ is None else environ
    python = Path(given.get("SGLANG_PYTHON") or "python3")
    found = _prepared(Path(given["SGLANG_HOME"]), python) if given.get("SGLANG_HOME") else _installed(python)
    if found.version != release:
        raise UsageError(f"SGLang {found.version} is at {found.package}, {release} was asked for; name it as release")
    return found


def _prepared(home: Path, python: Path) -> Installation:
    if not (home / DESCRIPTION).is_file():
        raise NotReadyError(f"SGLANG_HOME={home} has no {DESCRIPTION}; make the folder with invoke prepare-gpu")
    told = read_json(home / DESCRIPTION)
    root = home.resolve()
    paths = tuple(root / place for place in told["paths"])
    package = next((p / "sglang" for p in paths if (p / "sglang" / "__init__.py").is_file()), None)
    if package is None:
        raise NotReadyError(f"{home} holds no package sglang; unpack it again")
    environment = {key: value.replace("{home}", str(root)) for key, value in told["environment"].items()}
    return Installation(python, package, str(told["version"]), paths, environment, root)


def _installed(python: Path) -> Installation:
    try:
        done = subprocess.run([str(python), "-c", _ASK], capture_output=True, text=True, timeout=60, check=False)
    except OSError as e:
        raise NotReadyError(f"{python} cannot be run ({e.strerror}); set SGLANG_PYTHON to an interpreter") from e
    told = json.loads(done.stdout) if done.returncode == 0 else {"places": []}
    if len(told["places"]) != 1:
        raise NotReadyError(
            f"{python} has no SGLang; set SGLANG_PYTHON to the interpreter that has it, or SGLANG_HOME to a folder "
            "made with invoke prepare-gpu"
        )
    return Installation(python, Path(told["places"][0]), told["version"])
