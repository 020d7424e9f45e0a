"""The documentation as a site, built strictly: a dead link, a missing anchor, a page not in the menu fails it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from app.environment import ROOT, ensure
from app.errors import UsageError
from app.project.reference import Exits, reference_page
from app.records import write_text

REFERENCE = ROOT / "docs" / "reference.md"


def build_site(collection: object, exits: Exits, folder: str) -> None:
    """Writes docs/reference.md anew and builds docs/ into the folder; UsageError when a page or link is wrong."""
    require_own(out := Path(folder))
    ensure("docs")
    write_text(REFERENCE, reference_page(collection, exits))
    if subprocess.run(site_command(out), cwd=ROOT, env=site_environment()).returncode != 0:
        raise UsageError("the documentation has faults, named above; mend them and build again")
    print(f"{out / 'index.html'}")


def require_own(out: Path) -> None:
    """UsageError where a file is in the way, or the folder holds anything but an earlier site: mkdocs empties it."""
    there = next(place for place in (out, *out.absolute().parents) if place.exists())
    if not there.is_dir():
        raise UsageError(f"--out {out}: {there} is a file; name a new or empty folder")
    if out.is_dir() and any(out.iterdir()) and not (out / "sitemap.xml").is_file():
        raise UsageError(f"--out {out} holds other files, which would be removed; name a new or empty folder")


def site_command(out: Path) -> list[str]:
    """mkdocs' command line; every warning is a fault, which it would not be with --quiet."""
    return [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(out.absolute())]


def site_environment() -> dict[str, str]:
    """The environment of that command: without the theme's notice of its successor, which would bury a fault."""
    return {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
