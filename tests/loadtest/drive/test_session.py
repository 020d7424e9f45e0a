"""What a session loads before its first request."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]

PROGRAM = """
import sys
import loadtest.locustfile
from locust.env import Environment

environment = Environment()
environment.create_local_runner()
environment.web_ui = eval(sys.argv[1])
loadtest.locustfile.Session(environment, lambda: None)
print("scipy" in sys.modules)
"""


@pytest.mark.parametrize(("page", "loaded"), [("None", "False"), ("object()", "True")])
def test_statistics_are_loaded_where_a_page_shows_them_and_then_before_any_load(page: str, loaded: str) -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM, page], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (done.stdout.strip(), done.returncode) == (loaded, 0), done.stderr
