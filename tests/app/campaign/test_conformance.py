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


def test_a_client_that_misreads_a_shape_measures_nothing(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match=r"misreads 1 of 2 stream shapes \(error_event on chat"):
        require_conformance(RunFolder(tmp_path), lambda: [SOUND, DEAF])
    assert read_json(tmp_path / "conformance.json")["ok"] == 1
