"""The command that docs/statistics.md gives for sglang's bench client, held against that client's own source."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tests.app.engine.sglang.wheel_flags import RELEASES, client_flags, client_source, values
from tests.loadtest.importing.test_runs import closed_loop, sglang_record

PAGE = Path(__file__).resolve().parents[3] / "docs" / "statistics.md"


def documented() -> dict[str, list[str]]:
    found = re.search(r"^python -m sglang\.benchmark\.serving (.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert found
    return dict(values(shlex.split(found[1].replace("\\\n", " "))))


@pytest.mark.parametrize("release", RELEASES)
def test_the_documented_client_has_every_flag_given(release: str) -> None:
    known = client_flags(release)
    for flag, given in documented().items():
        assert len(given) == (known[flag].kind != "bool"), flag


@pytest.mark.parametrize("release", RELEASES)
def test_the_client_writes_every_field_that_is_read(release: str) -> None:
    fields = sglang_record(closed_loop(1, 0.01), 1).keys()
    assert [field for field in fields if f'"{field}": ' not in client_source(release)] == []


def test_the_documented_call_leaves_a_steady_window_of_one_line() -> None:
    flags = documented()
    assert int(flags["--num-prompts"][0]) == 12 * int(flags["--max-concurrency"][0])
    assert flags["--random-range-ratio"] == ["1"]
    assert "--request-rate" not in flags
