"""Locust's own parser with the lab's options, in a process of its own: importing Locust patches the whole process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PARSE = """
from locust.argument_parser import get_empty_argument_parser, setup_parser_arguments
from loadtest.drive.options import add_options
parser = get_empty_argument_parser()
setup_parser_arguments(parser)
add_options(parser)
print(parser.parse_args().web_host)
"""


@pytest.mark.parametrize(
    ("environ", "arguments", "host"),
    [({}, [], "127.0.0.1"), ({"LOCUST_WEB_HOST": "0.0.0.0"}, [], "0.0.0.0"), ({}, ["--web-host", "::1"], "::1")],
)
def test_page_listens_on_loopback_unless_it_is_told_otherwise(
    environ: dict[str, str], arguments: list[str], host: str
) -> None:
    command = [sys.executable, "-c", PARSE, *arguments]
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, **environ}, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == host
