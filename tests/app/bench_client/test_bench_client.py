"""The comparison of clients, with a stand-in for a client."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from app.bench_client import Comparison, check_conformance, compare_clients
from app.bench_client.compare import truth_of
from app.bench_client.ours import OURS
from app.bench_client.table import table, write_table
from app.bench_client.tokenizer import HUB_NAME, write_tokenizer
from app.bench_client.tools import Load, Reported, Tool
from app.errors import NotReadyError

LOAD = Load(streams=4, requests=4, prompt_tokens=8, output_tokens=20)

CLIENT = """
import json, sys, urllib.request
url, out = sys.argv[1:]
for number in range(2):
    body = {"prompt": f"a {number}", "max_tokens": 5, "stream": True, "ignore_eos": True}
    head = {"Content-Type": "application/json"}
    ask = urllib.request.Request(url + "/v1/completions", json.dumps(body).encode(), head)
    urllib.request.urlopen(ask).read()
json.dump([51.0, 20.0, 20.0, 30.0], open(out + "/out.json", "w"))
"""


def tool(code: str, **changes: object) -> Tool:
    values: dict[str, object] = {
        "name": "stand-in",
        "packages": (),
        "arguments": lambda home, url, load, tokenizer, out: [sys.executable, "-c", code, url, str(out)],
        "read": lambda out: Reported(*json.loads((out / "out.json").read_text())),
    }
    return Tool(**(values | changes))  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def _installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in ("stand-in", "decode-ab"):
        home = tmp_path / "cache" / "decode-ab" / "bench" / name
        home.mkdir(parents=True)
        (home / "installed").touch()


def test_client_is_held_against_what_the_mock_sent() -> None:
    (found,) = compare_clients([tool(CLIENT)], LOAD)
    assert found.mock_late_p99_ms is not None
    assert (found.client, found.requests, found.error) == ("stand-in", 2, "")
    assert found.truth is not None
    assert found.truth.ttft_ms == pytest.approx(50, abs=15)
    assert found.truth.tpot_ms == pytest.approx(20, rel=0.2)


def test_our_own_driver_is_one_of_the_clients() -> None:
    (found,) = compare_clients([OURS], LOAD)
    assert found.reported is not None
    assert found.truth is not None
    assert found.reported.tpot_ms == pytest.approx(found.truth.tpot_ms, rel=0.05)


@pytest.mark.parametrize("code", ["raise SystemExit('no luck')", "pass"])
def test_client_that_leaves_no_result_is_a_row_that_says_so(code: str) -> None:
    (found,) = compare_clients([tool(code)], LOAD)
    assert "left no result" in found.error
    assert found.reported is None


def test_client_that_cannot_be_installed_is_left_out() -> None:
    def refuse(home: Path) -> None:
        raise NotReadyError("stand-in could not be installed: no such version; it is left out")

    broken = tool(CLIENT, name="absent", packages=(), prepare=refuse)
    (found,) = compare_clients([broken], LOAD)
    assert "could not be installed" in found.error


def test_truth_is_that_of_the_mocks_stamps() -> None:
    ms = 1_000_000
    records = [{"received_ns": 0, "sent_ns": [50 * ms, 60 * ms, 70 * ms], "tokens": [1, 1, 1]}]
    found = truth_of(records)
    assert found.tokens_per_s == pytest.approx(3 / 0.07)
    assert (found.ttft_ms, found.tpot_ms, found.gap_p99_ms) == (50.0, 10.0, 10.0)


def test_table_prints_errors_against_the_truth_and_what_is_not_reported(tmp_path: Path) -> None:
    seen = Reported(52.0, 20.2, None, 99.0)
    found = [
        Comparison("one", seen, Reported(50.0, 20.0, 20.0, 100.0), 1.25, 8, "", 0.5),
        Comparison("two", None, None, None, 0, "no result"),
    ]
    text = write_table(found, LOAD, 20.0, tmp_path).read_text()
    assert "| one | 8 | +2.00 ms | +1.00 % | not reported | -1.00 % | 1.2 | 0.5 ms |" in text
    assert "left out: no result" in text
    assert "SIMULATED" in table(found, LOAD, 20.0, 0.0)
    assert json.loads((tmp_path / "bench_client.json").read_text())["simulated"] is True


def test_tokenizer_folder_holds_the_hub_layout_too(tmp_path: Path) -> None:
    folder = write_tokenizer(tmp_path / "t")
    snapshot = folder / "hub" / f"models--{HUB_NAME.replace('/', '--')}" / "snapshots" / "0"
    assert (snapshot / "tokenizer.json").read_text() == (folder / "tokenizer.json").read_text()
    assert len(json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]) == 259


def test_conformance_is_one_call_away() -> None:
    checks = check_conformance()
    assert len(checks) > 60
    assert all(check.ok for check in checks), [c for c in checks if not c.ok]
