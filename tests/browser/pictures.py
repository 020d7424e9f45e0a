"""Pictures of pages: kept with the test's files, and where PICTURES names a folder, in it for the documentation."""

from __future__ import annotations

import os
from pathlib import Path

from selenium import webdriver


def take_picture(browser: webdriver.Chrome, folder: Path, name: str, *, documented: bool = False) -> Path:
    """A PNG of the visible part of the page; documented: one of those under docs/images."""
    wanted = os.environ.get("PICTURES") if documented else None
    file = (Path(wanted) if wanted else folder) / f"{name}.png"
    assert browser.save_screenshot(str(file))
    return file
