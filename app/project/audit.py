"""Known vulnerabilities of locked packages, by pip-audit; what could not be looked up is no pass."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from app.environment import ROOT
from app.errors import NotReadyError, UsageError, printable
from app.report.wording import counted

SERVICES = ("pypi", "osv")
LAST_WORDS = 200


@dataclass(frozen=True, slots=True)
class Package:
    """What was found of one package. skipped: why it could not be looked up; known: identifiers of vulnerabilities."""

    name: str
    version: str = ""
    skipped: str = ""
    known: tuple[str, ...] = ()


def show_audit(service: str) -> bool:
    """Whether nothing is known against any locked package; NotReadyError when some could not be looked up."""
    if service not in SERVICES:
        raise UsageError.unknown("service", service, SERVICES)
    locks = [p for p in sorted((ROOT / "requirements").iterdir()) if p.suffix in (".lock", ".txt")]
    return audit(locks, service)


def audit(locks: Sequence[Path], service: str) -> bool:
    """Prints a line a lock file, and one for each package against which something is known."""
    found: list[Package] = []
    for lock in locks:
        of_lock = look_up(lock, service)
        found += of_lock
        print(*_lines(lock, of_lock), sep="\n", flush=True)
    skipped, known = [p for p in found if p.skipped], [p for p in found if p.known]
    if not skipped:
        return not known
    told = f"not audited: {len(skipped)} of {counted(len(found), 'package')}, such as {skipped[0].skipped}"
    if known:
        print(told)
        return False
    raise NotReadyError(
        f"{told}; an index without its JSON interface looks like that, try another --service or network"
    )


def look_up(lock: Path, service: str) -> list[Package]:
    """Every package of a lock file; NotReadyError when pip-audit is missing or fails, as it does without network."""
    tool = shutil.which("pip-audit")
    if tool is None:
        raise NotReadyError("not audited: there is no pip-audit here; pipx install pip-audit, then run this again")
    # Locked to the last package: nothing is to be resolved, and no pip asked.
    locked = "--require-hashes" if "--hash=" in lock.read_text(encoding="utf-8") else "--no-deps"
    options = [locked, "--disable-pip", "--progress-spinner", "off", "--format", "json"]
    done = subprocess.run(
        [tool, "-r", str(lock), *options, "--vulnerability-service", service], capture_output=True, text=True
    )
    try:
        return list(_packages(done.stdout))
    except (ValueError, KeyError, TypeError) as e:
        last = printable((done.stderr.strip().splitlines() or ["no message"])[-1], LAST_WORDS)
        raise NotReadyError(f"not audited: pip-audit ended with {done.returncode} on {lock.name}: {last}") from e


def _packages(report: str) -> Iterator[Package]:
    for entry in json.loads(report)["dependencies"]:
        if "skip_reason" in entry:
            yield Package(entry["name"], skipped=entry["skip_reason"])
        else:
            yield Package(entry["name"], entry["version"], known=tuple(v["id"] for v in entry["vulns"]))


def _lines(lock: Path, found: Sequence[Package]) -> Iterator[str]:
    known = [p for p in found if p.known]
    looked_up = sum(not p.skipped for p in found)
    sound = f", {len(known)} with a known vulnerability" if looked_up else ""
    yield f"{lock.name}: {looked_up} of {counted(len(found), 'package')} looked up{sound}"
    for package in known:
        yield f"  {package.name} {package.version}: {', '.join(package.known)}"
