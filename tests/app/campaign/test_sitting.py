from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from app.campaign.archives import restore
from app.campaign.sitting import Ended, Order, Pause, Sitting, pair_of
from app.environment import ROOT
from app.errors import ProofError, UnwrittenError, UsageError

ORDER = Order(prefix="card", seconds=10_000, out=Path("out"), server="topology=single", blocks=4, window_s=1)
TWO = (("fast", "pinned"), ("v1", "pinned"))


class Lab:
    """Finishes a block in `block_s` of its own clock and leaves what a campaign would."""

    def __init__(self, runs: Path, block_s: float = 100) -> None:
        self.runs, self.block_s, self.now, self.order_of_blocks = runs, block_s, 0.0, list[str]()
        self.first_s = block_s
        self.fault = ""
        self.broken: BaseException | None = None
        self.void: list[str] = []
        # What was archived when the last block had ended, before anything else was done.
        self.seen: list[str] = []

    def clock(self) -> float:
        return self.now

    def measure(self, order: Order, pair: tuple[str, str], pause: Pause, ended: Ended) -> None:
        folder = self.runs / order.name(pair)
        for block in range(order.blocks):
            here = folder / "blocks" / f"{block:03d}"
            if (here / "block.json").exists():
                continue
            if pause():
                return
            if self.fault == order.name(pair):
                raise ProofError("another kernel")
            (here / "start-00-v1").mkdir(parents=True)
            (here / "start-00-v1" / "rows.parquet").write_text("rows")
            (folder / "engine").mkdir(exist_ok=True)
            (folder / "engine" / "cache").write_text("large")
            if self.broken and block == 2:
                raise self.broken
            (here / "block.json").write_text(json.dumps({"void": self.void, "attempt": 1}))
            self.now += self.block_s if block else self.first_s
            self.order_of_blocks.append(pair[0])
            ended()
            self.seen = sorted(path.name for path in order.out.glob("*-0*.tar.gz"))


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path / "runs")


def sit(lab: Lab, tmp_path: Path, seconds: float = 10_000) -> Sitting:
    order = replace(ORDER, out=tmp_path / "out", pairs=TWO, seconds=seconds)
    return Sitting(order, lab.measure, lab.clock, lab.runs)


def names(archive: Path) -> set[str]:
    with tarfile.open(archive) as tar:
        return set(tar.getnames())


def test_each_pair_has_three_blocks_before_the_next_and_is_filled_up_afterwards(lab: Lab, tmp_path: Path) -> None:
    assert sit(lab, tmp_path).run() == {"card-fast-pinned": 4, "card-v1-pinned": 4}
    assert lab.order_of_blocks == ["fast"] * 3 + ["v1"] * 3 + ["fast", "v1"]


def test_no_block_begins_that_would_not_end_in_time(lab: Lab, tmp_path: Path) -> None:
    assert sit(lab, tmp_path, seconds=550).run() == {"card-fast-pinned": 3, "card-v1-pinned": 2}
    assert lab.now == 500


def test_what_a_first_block_alone_takes_is_not_expected_of_the_next(lab: Lab, tmp_path: Path) -> None:
    lab.first_s = 400
    assert sit(lab, tmp_path, seconds=600).run() == {"card-fast-pinned": 3, "card-v1-pinned": 0}


def test_a_later_sitting_goes_on_where_the_last_one_stopped(lab: Lab, tmp_path: Path) -> None:
    sit(lab, tmp_path, seconds=550).run()
    assert sum(sit(lab, tmp_path).run().values()) == 8
    assert lab.order_of_blocks.count("v1") == 4


def test_a_pair_whose_proof_fails_does_not_keep_the_next_from_its_turn(lab: Lab, tmp_path: Path) -> None:
    lab.fault = "card-fast-pinned"
    sitting = sit(lab, tmp_path)
    assert sitting.run() == {"card-fast-pinned": 0, "card-v1-pinned": 4}
    assert json.loads((tmp_path / "out" / "sitting.json").read_text())["faults"] == {lab.fault: "another kernel"}


def test_a_void_attempt_is_no_block_yet(lab: Lab, tmp_path: Path) -> None:
    lab.void = ["start-00-v1 C=8: client late"]
    assert sit(lab, tmp_path).run() == {"card-fast-pinned": 0, "card-v1-pinned": 0}
    assert not list((tmp_path / "out").glob("*-0*.tar.gz"))


def test_every_blocks_rows_are_archived_and_the_state_is_small(lab: Lab, tmp_path: Path) -> None:
    sit(lab, tmp_path).run()
    rows = "card-v1-pinned/blocks/002/start-00-v1/rows.parquet"
    assert rows in names(tmp_path / "out" / "card-v1-pinned-002.tar.gz")
    state = names(tmp_path / "out" / "state.tar.gz")
    assert "card-v1-pinned/blocks/002/block.json" in state
    assert not [name for name in state if name.endswith("rows.parquet") or "/engine/" in name]


def archived(tmp_path: Path) -> list[str]:
    return sorted(path.name.removesuffix(".tar.gz") for path in (tmp_path / "out").glob("card-*.tar.gz"))


def test_the_last_blocks_rows_are_archived_before_its_stack_is_stopped_and_judged(lab: Lab, tmp_path: Path) -> None:
    sit(lab, tmp_path).run()
    assert lab.seen == [f"card-{pair}-pinned-00{block}.tar.gz" for pair in ("fast", "v1") for block in range(4)]


@pytest.mark.parametrize("fault", [ProofError("another kernel"), KeyboardInterrupt(), ValueError("unforeseen")])
def test_a_fault_leaves_the_rows_of_all_blocks_the_broken_one_among_them(
    lab: Lab, tmp_path: Path, fault: BaseException
) -> None:
    lab.broken = fault
    with contextlib.suppress(KeyboardInterrupt, ValueError):
        sit(lab, tmp_path).run()
    assert archived(tmp_path)[:3] == [f"card-fast-pinned-00{block}" for block in ("0", "1", "2.unfinished")]
    rows = "card-fast-pinned/blocks/002/start-00-v1/rows.parquet"
    assert rows in names(tmp_path / "out" / "card-fast-pinned-002.unfinished.tar.gz")


def test_void_attempts_rows_are_archived_only_where_a_fault_ended_the_campaign(lab: Lab, tmp_path: Path) -> None:
    attempt = lab.runs / "card-fast-pinned" / "blocks" / "000.void-1" / "start-00-v1"
    attempt.mkdir(parents=True)
    (attempt / "rows.parquet").write_text("rows")
    sit(lab, tmp_path, seconds=200).run()
    assert archived(tmp_path) == ["card-fast-pinned-000"]
    lab.broken = ProofError("another kernel")
    sit(lab, tmp_path).run()
    assert "card-fast-pinned-000.void-1" in archived(tmp_path)


def test_a_later_sitting_archives_what_a_killed_one_had_not_and_nothing_twice(lab: Lab, tmp_path: Path) -> None:
    sit(lab, tmp_path, seconds=290).run()
    (lab.runs / "card-fast-pinned" / "archived.json").write_text('["000"]')
    shutil.rmtree(tmp_path / "out")
    sit(lab, tmp_path, seconds=0).run()
    assert archived(tmp_path) == ["card-fast-pinned-001"]


@pytest.mark.parametrize("taken", ["card-fast-pinned-000.tar.gz", "state.tar.gz", "sitting.json"])
def test_an_archive_that_cannot_be_written_ends_the_sitting_in_a_line(lab: Lab, tmp_path: Path, taken: str) -> None:
    (tmp_path / "out" / taken).mkdir(parents=True)
    with pytest.raises(UnwrittenError, match=rf"/out/{re.escape(taken)} could not be written: .*; see that its folder"):
        sit(lab, tmp_path).run()
    assert lab.order_of_blocks in ([], ["fast"])


def test_a_state_is_restored_elsewhere_and_never_over_what_is_there(lab: Lab, tmp_path: Path) -> None:
    sit(lab, tmp_path).run()
    restore(tmp_path / "out" / "state.tar.gz", tmp_path / "elsewhere")
    assert (tmp_path / "elsewhere" / "card-fast-pinned" / "blocks" / "003" / "block.json").is_file()
    with pytest.raises(UsageError, match=r"is in .*elsewhere already"):
        restore(tmp_path / "out" / "state.tar.gz", tmp_path / "elsewhere")


def test_the_plan_pairs_a_variant_with_the_control_that_is_asked_for() -> None:
    plan = ORDER.plan(("fast", "flashmla"))
    assert plan.controls == {"fast": "flashmla"}
    assert [s.variant for s in plan.starts(0)] != [s.variant for s in plan.starts(1)]


def test_variants_of_one_control_share_its_starts() -> None:
    plan = ORDER.plan(pair_of("fast+v1-pinned"))
    assert plan.controls == {"fast": "pinned", "v1": "pinned"}
    assert sorted(s.variant for s in plan.starts(0)) == ["fast", "pinned", "v1"]
    assert ORDER.name(pair_of("fast+v1-pinned")) == "card-fast-v1-pinned"


def test_a_block_of_more_starts_is_given_more_time(lab: Lab, tmp_path: Path) -> None:
    order = replace(ORDER, out=tmp_path / "out", pairs=(("fast", "pinned"), ("fast+v1+v2", "pinned")), seconds=590)
    ended = Sitting(order, lab.measure, lab.clock, lab.runs).run()
    assert ended == {"card-fast-pinned": 4, "card-fast-v1-v2-pinned": 1}


def test_a_pair_is_named_by_variant_and_control() -> None:
    assert pair_of("fast-upstream") == ("fast", "upstream")
    with pytest.raises(UsageError, match="VARIANT-CONTROL"):
        pair_of("fast")


# A sitting by its own command line, in whose first block it is ended from outside; nothing else of it is replaced.
BY_ITSELF = """
import runpy, sys, time
from pathlib import Path
from app.campaign import compare

def begin(plan, setup, name, *_):
    start = Path("runs") / name / "blocks" / "000" / "start-00-v1"
    start.mkdir(parents=True)
    (start / "rows.parquet").write_text("rows")
    print("measuring", flush=True)
    time.sleep(60)

compare.begin = begin
sys.argv = ["sitting", "--prefix", "card", "--seconds", "9999", "--out", "out", "--pairs", "fast-pinned"]
runpy.run_module("app.campaign.sitting", run_name="__main__", alter_sys=True)
"""


def test_a_sitting_that_is_ended_from_outside_archives_what_it_has_and_ends_as_interrupted(tmp_path: Path) -> None:
    command, pipe = [sys.executable, "-c", BY_ITSELF], subprocess.PIPE
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=pipe, stderr=pipe, text=True) as sitting:
        assert sitting.stdout is not None
        assert sitting.stdout.readline() == "measuring\n"
        sitting.send_signal(signal.SIGTERM)
        said = sitting.communicate(timeout=60)[1]
    assert (sitting.returncode, said) == (-signal.SIGINT, "lab: interrupted; what was measured is in out\n")
    assert archived(tmp_path) == ["card-fast-pinned-000.unfinished"]
