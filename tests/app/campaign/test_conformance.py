from __future__ import annotations

from pathlib import Path

import pytest

from app.campaign.conformance import require_conformance
from app.campaign.runs import RunFolder
from app.errors import LoadError
from app.records import read_json
from loadtest.client.conformance import Check

SOUND = Check("plain", "chat", "", "", ())
DEAF = Check("error_event", "chat", "stream_error", "", ())


def test_a_client_that_reads_every_shape_is_trusted_and_the_record_kept(tmp_path: Path) -> None:
    require_conformance(RunFolder(tmp_path), lambda: [SOUND, SOUND])
    assert read_json(tmp_path / "conformance.json") == {"shapes": 2, "ok": 2, "wrong": []}


def test_a_client_that_misreads_a_shape_measures_nothing_and_is_told_how_to_go_on(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match=r"fails 1 of 2 stream shapes") as failed:
        require_conformance(RunFolder(tmp_path / "a-b"), lambda: [SOUND, DEAF])
    assert "error_event on chat: taken for 'sound' in place of 'stream_error'" in str(failed.value)
    assert "`./lab compare --resume a-b`" in str(failed.value)
    assert read_json(tmp_path / "a-b" / "conformance.json")["ok"] == 1


def test_a_shape_that_is_read_right_but_stamped_wrong_is_not_said_to_be_misread(tmp_path: Path) -> None:
    early = Check("plain", "chat", "", "", ("an event stamped 12 us before it was sent",))
    with pytest.raises(LoadError, match=r"\(plain on chat: an event stamped 12 us before it was sent\)"):
        require_conformance(RunFolder(tmp_path), lambda: [early])
