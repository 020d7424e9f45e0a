"""The load driver for real, against the simulated engine behind the real router, while its servers are taken away."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from app.campaign.load import last_words, run_load, write_order
from app.engine.probe import generated_tokens
from app.engine.sim.engine import SimEngine
from app.errors import LoadError, NotReadyError, RecordsError
from app.kernel.placed import PlacedKernel
from app.stack.local import LocalStack
from app.stack.process import wait_until
from app.stack.watch import Watch
from loadtest.plan import Lengths, Plan, WindowRules
from tests.app.fake_stack import FakeStack
from tests.app.stack.test_local import kernel

RULES = WindowRules(settle_s=10, window_s=1200)
PLAN = Plan(1, {"v1": "pinned"}, (2,), 2, lengths=Lengths(16, 128), window=RULES, time_scale=20)


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[LocalStack]:
    with LocalStack(SimEngine(1, 20), tmp_path / "logs") as made:
        yield made


@pytest.fixture
def placed(tmp_path: Path) -> PlacedKernel:
    return kernel(tmp_path, "pinned", 4)


def children() -> set[int]:
    return {p.pid for p in psutil.Process().children(recursive=True)}


def test_a_load_ends_within_seconds_of_its_decode_service(
    stack: LocalStack, placed: PlacedKernel, tmp_path: Path
) -> None:
    endpoints, start = stack.up(placed, "a"), PLAN.starts(0)[0]
    order = write_order(PLAN, start, endpoints, tmp_path / "start", simulated=True)
    before, pid, killed_s = children(), stack.pid("decode"), list[float]()
    assert pid is not None

    def kill() -> None:
        wait_until(lambda: generated_tokens(endpoints.decode_url) > 8, 20)
        os.kill(pid, signal.SIGKILL)
        killed_s.append(time.monotonic())

    assassin = threading.Thread(target=kill)
    assassin.start()
    with pytest.raises(NotReadyError, match="decode ended during the load"):
        run_load(order, PLAN, start, Watch(stack, endpoints.router_url))
    assassin.join()
    assert time.monotonic() - killed_s[0] < 6
    assert children() <= before


TABLES = (
    "[t] vm/INFO/locust.main: Shutting down (exit code 1)",
    "Type     Name                   # reqs      # fails |    Avg     Min     Max    Med |   req/s  failures/s",
    "--------|----------------------|-------|-------------|-------|-------|-------|-------|--------|-----------",
    "stream   E2E C=1                    26  26(100.00%) |     62      49      87     62 |    1.78        1.78",
    "         Aggregated                 26  26(100.00%) |     62      49      87     62 |    1.78        1.78",
    "Response time percentiles (approximated)",
    "stream   E2E C=1                    62     65     67     67     73     79     88     88     88     88     26",
    "--------|----------------------|--------|------|------|------|------|------|------|------|------|------",
    "",
)
REPORT = (
    "Error report",
    "# occurrences      Error",
    "26   stream E2E C=1: RuntimeError('HTTP 400')",
    "-----|-----",
    "",
)


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (("Traceback", "ValueError: lengths", *TABLES), "ValueError: lengths"),
        (("[t] vm/ERROR/loadtest: prefill answers 400", *TABLES), "[t] vm/ERROR/loadtest: prefill answers 400"),
        ((*TABLES, *REPORT), "26   stream E2E C=1: RuntimeError('HTTP 400')"),
        (TABLES, TABLES[0]),
        (("", "---|---"), "no output"),
        ((), "no output"),
    ],
)
def test_a_drivers_last_words_are_none_of_its_tables(lines: tuple[str, ...], words: str) -> None:
    assert last_words(lines) == words


def failing_load(tmp_path: Path) -> None:
    with FakeStack() as stack:
        start = PLAN.starts(0)[0]
        order = write_order(PLAN, start, stack.endpoints, tmp_path / "start", simulated=True)
        run_load(order, PLAN, start, Watch(stack, stack.endpoints.router_url), python=("/bin/false",))


def test_a_driver_that_fails_is_told_by_its_exit_code(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match="ended with exit code 1"):
        failing_load(tmp_path)


def test_a_driver_that_fails_on_a_full_disk_ends_the_campaign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=0))
    with pytest.raises(RecordsError, match="no space left"):
        failing_load(tmp_path)
