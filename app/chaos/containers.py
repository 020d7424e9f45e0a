"""The same faults on containers: what the tests that need a Docker Engine try, counted as the other faults are."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from xml.etree import ElementTree

from app.chaos.record import Tried
from app.environment import ROOT
from app.errors import NotReadyError
from app.image.daemon import connect

KIND = "containers and Engine killed, stopped, interrupted"
TESTS = ("tests/docker/test_interruptions.py", "tests/docker/test_campaign.py")


def containers_killed(folder: Path) -> Tried:
    """Skipped, with the reason, where no Docker Engine answers."""
    try:
        connect()
    except NotReadyError as e:
        return Tried(KIND, skipped=str(e))
    report, began = folder / "containers.xml", time.monotonic()
    subprocess.run([sys.executable, "-m", "pytest", "-q", *TESTS, f"--junit-xml={report}"], cwd=ROOT)
    counts = ElementTree.parse(report).getroot().find("testsuite")
    if counts is None:
        return Tried(KIND, skipped="the tests left no report")
    tried, failed, skipped = (int(counts.get(name, "0")) for name in ("tests", "failures", "skipped"))
    failed += int(counts.get("errors", "0"))
    note = f"{skipped} tests skipped" if skipped else ""
    return Tried(KIND, tried - skipped, tried - skipped - failed, seconds=time.monotonic() - began, note=note)
