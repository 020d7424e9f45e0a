"""Locust's own parser with the lab's options, in a process of its own: importing Locust patches the whole process."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from app.errors import UsageError
from loadtest.drive.options import add_options, order_from
from loadtest.order import StartOrder
from tests.loadtest.conftest import free_port

ROOT = Path(__file__).resolve().parents[3]
PARSE = """
from locust.argument_parser import get_empty_argument_parser, setup_parser_arguments
from loadtest.drive.options import add_options
parser = get_empty_argument_parser()
setup_parser_arguments(parser)
add_options(parser)
found = parser.parse_args()
print(found.web_host, found.decode_ab_concurrencies, found.decode_ab_lengths, found.decode_ab_window)
"""
LOAD = (ROOT / "docs" / "load.md").read_text()


@pytest.mark.parametrize(
    ("environ", "arguments", "host"),
    [({}, [], "127.0.0.1"), ({"LOCUST_WEB_HOST": "0.0.0.0"}, [], "0.0.0.0"), ({}, ["--web-host", "::1"], "::1")],
)
def test_page_listens_on_loopback_unless_it_is_told_otherwise(
    environ: dict[str, str], arguments: list[str], host: str
) -> None:
    assert parsed(environ, *arguments)[0] == host


def test_the_page_on_load_tells_what_a_run_with_nothing_set_measures() -> None:
    _, levels, lengths, window = parsed({})
    assert f"levels {levels}, lengths {lengths}, settle and window {window} s" in LOAD


@pytest.mark.parametrize("wait", ["-1", "nan", "inf"])
def test_a_wait_that_cannot_be_is_refused(wait: str) -> None:
    with pytest.raises(UsageError, match=rf"--decode-ab-wait {wait}: seconds from 0 on are needed"):
        ordered("--decode-ab-wait", wait)


@pytest.mark.parametrize(
    ("option", "value", "says"),
    [
        ("--decode-ab-concurrencies", "1,nan", "concurrencies '1,nan': every number must be finite"),
        ("--decode-ab-lengths", "inf,8", "lengths 'inf,8': every number must be finite"),
        ("--decode-ab-time-scale", "nan", "time_scale nan; it must be positive and finite"),
        ("--decode-ab-rate", "nan", "rate nan; both must be positive and finite"),
    ],
)
def test_what_is_no_finite_number_is_refused(option: str, value: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        ordered(option, value)


def ordered(*arguments: str) -> StartOrder:
    """What a run with these options is ordered, with a host where nobody answers."""
    parser = argparse.ArgumentParser()
    add_options(parser)
    options = parser.parse_args(["--decode-ab-wait", "0", *arguments])
    return order_from(SimpleNamespace(parsed_options=options, host=f"http://127.0.0.1:{free_port()}"))


def parsed(environ: dict[str, str], *arguments: str) -> list[str]:
    """Host of the page, levels, lengths and window as Locust would have them."""
    command = [sys.executable, "-c", PARSE, *arguments]
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, **environ}, capture_output=True, text=True, check=True)
    return done.stdout.split()
