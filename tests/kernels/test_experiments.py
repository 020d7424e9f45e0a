from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import torch

from kernels import experiments
from kernels import sparse_mla_decode as ours
from kernels.bench import BASE, Row, Writer
from kernels.bench_providers import Provider
from kernels.cases import Case, make_inputs
from kernels.experiment_code import KERNELS, config, resources
from kernels.experiments import BATCHES, PLAN, Machine, contenders, main
from kernels.one_loop import one_loop
from kernels.reference import attend
from kernels.sparse_mla_decode import Choice
from kernels.stream_k import Ranges, _worker, most_splits, stream_k, worker_count

pytestmark = pytest.mark.kernel

ROOT = Path(__file__).parents[2]
AGREEING = (
    "stream, mixed", "stream, 24 heads", "live, straggler", "live, mixed", "live, nothing", "whole rows, garbage",
    "one loop, mixed", "one loop, garbage", "one loop, nothing",
)  # fmt: skip

Findings = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def findings() -> Findings:
    """What the interpreter found for every schedule, in one process."""
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.kernels.interpreted_schedules"],
        cwd=ROOT, env={**os.environ, "TRITON_INTERPRET": "1"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr[-2000:]
    found: Findings = json.loads(run.stdout)
    return found


@pytest.mark.parametrize("case", AGREEING)
def test_schedule_agrees_with_float64_and_with_its_second_run(case: str, findings: Findings) -> None:
    found = findings[case]
    assert found["error"] < 1e-6
    assert found["lse_error"] < 1e-5
    assert found["infinities"]
    assert found["same"]


@pytest.mark.parametrize(
    ("batch", "tiles", "workers"), [(96, 8, 264), (80, 16, 396), (7, 5, 3), (1, 16, 16), (5, 1, 4)]
)
def test_every_tile_has_the_worker_whose_range_holds_it(batch: int, tiles: int, workers: int) -> None:
    units = batch * tiles
    held = [w for w in range(workers) for _ in range(w * units // workers, (w + 1) * units // workers)]
    assert held == [_worker.fn(tile, workers, units, 1) for tile in range(units)]


def test_no_row_has_more_owners_than_there_is_room_for() -> None:
    for batch, tiles, workers in product(range(1, 12), range(1, 12), range(1, 30)):
        workers = min(workers, batch * tiles)
        owners = [_worker.fn(tile, workers, batch * tiles, 1) for tile in range(batch * tiles)]
        rows = [owners[row * tiles : (row + 1) * tiles] for row in range(batch)]
        assert max(row[-1] - row[0] + 1 for row in rows) <= most_splits(batch, tiles, workers, Ranges())


def test_whole_rows_are_never_shared() -> None:
    assert most_splits(512, 8, 264, Ranges(whole_rows=True)) == 1
    assert {_worker.fn(tile, 3, 5, 8) for tile in range(8, 16)} == {1}


@pytest.mark.parametrize(("batch", "snug"), [(48, 192), (64, 256), (80, 214), (96, 256), (512, 256)])
def test_snug_ranges_are_as_short_with_fewer_programs(batch: int, snug: int) -> None:
    assert worker_count(batch * 8, 264, Ranges(snug=True)) == snug
    assert -(-batch * 8 // snug) == -(-batch * 8 // 264)


def test_what_cannot_be_dealt_out_is_refused() -> None:
    inputs = make_inputs(Case(batch=1, topk=2048, page=64, pool=64)).arguments()
    with pytest.raises(ValueError, match="live ranges share rows"):
        stream_k(inputs, Choice(16, 4, 1), Ranges(live=True, whole_rows=True))
    with pytest.raises(ValueError, match="128 owners, more than 64"):
        stream_k(inputs, Choice(16, 4, 1), Ranges(), workers=128)
    with pytest.raises(ValueError, match="one loop anyway"):
        one_loop(inputs, Choice(16, 4, 1))


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (lambda out, lse: (out, lse), ""),
        (lambda out, lse: (out * 1.01, lse), "error 0.01"),
        (lambda out, lse: (out, lse * torch.nan), "LSE off, LSE of an empty row, runs differ"),
        (lambda out, lse: (out, lse.nan_to_num(neginf=0.0)), "LSE of an empty row"),
    ],
)
def test_wrong_results_are_faults(spoil: Any, told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(experiments, "CHECKED", (Case(topk=16, pool=64, page=64, lengths="ragged"),))
    monkeypatch.setattr(experiments, "make_inputs", lambda case, _: make_inputs(case))
    monkeypatch.setattr(experiments, "_replayed", lambda provider, inputs: [provider.call(inputs)])
    experiments._answer.cache_clear()
    found = experiments.faults_of("e", Provider("any", lambda inputs: spoil(*attend(**inputs.arguments()))))
    assert [fault.partition(": ")[2] for fault in found] == ([told] if told else [])


def row_of(case: Case, name: str) -> Row:
    """A SIMULATED row of one microsecond."""
    return Row(name, case.batch, case.heads, case.topk, case.extra, case.lengths, 1.0, 1.0, 1.0, 1.0, 0.5, 0.0)


def fake_machine(wrong: str = "") -> Machine:
    """A machine that times nothing: SIMULATED rows of one microsecond; contenders named `wrong` have a fault."""

    def faults(_: str, provider: Provider) -> list[str]:
        return [f"{provider.name}: error 1"] if wrong and provider.name.startswith(wrong) else []

    return Machine(
        {"device": "SIMULATED"}, lambda c, p: row_of(c, p.name), faults, lambda jobs: [f"{len(jobs)} compiled"]
    )


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return [*csv.DictReader(file)]


def test_race_writes_a_row_for_every_contender_of_every_case(tmp_path: Path) -> None:
    out = tmp_path / "rows.csv"
    assert main(["--out", str(out), "--experiments", "d", "e"], fake_machine()) == 0
    wanted = [(p.name, case.batch) for name in ("d", "e") for case in PLAN[name] for p in contenders(name, case)]
    assert [(row["provider"], int(row["batch"])) for row in rows(out)] == wanted
    assert json.loads(out.with_suffix(".json").read_text()) == {"device": "SIMULATED"}


def test_contender_with_a_fault_is_told_and_not_timed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "rows.csv"
    assert main(["--out", str(out), "--experiments", "e"], fake_machine("stream 64/4/2/2/0/chained")) == 1
    assert "not timed: stream 64/4/2/2/0/chained: error 1" in capsys.readouterr().err
    assert {row["provider"] for row in rows(out)} >= {"fixed 64/4/2/2/0/chained", "stream 32/4/3/2/0/chained"}
    assert not [row for row in rows(out) if row["provider"] == "stream 64/4/2/2/0/chained"]


def test_summary_names_the_fastest_choice_of_each_schedule(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "rows.csv", {})
    for name, us in (("fast", 25.0), ("stream 64/4/2", 27.0), ("stream 32/4/3", 24.0), ("one loop 32/4/3", 26.0)):
        writer.write(replace(row_of(BASE, name), median_us=us))
    (line,) = experiments.summary(tmp_path / "rows.csv")
    assert line == "| 1 | 16 | 512 | full | fast 25.0 | stream 24.0 (32/4/3) | one loop 26.0 (32/4/3) |"


def test_no_measurement_begins_after_the_time(tmp_path: Path) -> None:
    main(["--out", str(tmp_path / "rows.csv"), "--experiments", "e", "--seconds", "0"], fake_machine())
    assert rows(tmp_path / "rows.csv") == []


def test_unknown_experiment_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SystemExit):
        main(["--out", str(tmp_path / "rows.csv"), "--experiments", "z"], fake_machine())


def contender() -> Provider:
    """Any that is raced."""
    return next(contenders("e", BASE))


def test_input_sets_are_made_once_for_a_case(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    monkeypatch.setattr(experiments, "read_bandwidth", lambda: 4e12)
    monkeypatch.setattr(experiments, "conditions", lambda command, bandwidth: {"read_tb_per_s": bandwidth / 1e12})
    monkeypatch.setattr(experiments, "input_sets", lambda case, provider: made.append((case.batch, provider.heads)))
    monkeypatch.setattr(experiments, "measure", lambda *taken: taken)
    machine = experiments.this_machine([], workers=1)
    wide = replace(contender(), heads=64)
    for case, provider in product((BASE, replace(BASE, batch=8)), (contender(), wide, contender(), wide)):
        machine.measure(case, provider)
    assert made == [(1, 1), (1, 64), (8, 1), (8, 64)]
    assert machine.facts == {"read_tb_per_s": 4.0}


def test_fast_is_the_products_kernel_under_the_variants_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ours, "TUNED", {})
    assert experiments.fast().name == "fast"
    assert ours.tuned_choice("90", 16, 96, 512) == experiments.THREE


def test_each_experiment_races_the_product_under_the_same_choices() -> None:
    names = [p.name for p in contenders("e", replace(BASE, batch=512))]
    fixed = {name.removeprefix("fixed ") for name in names if name.startswith("fixed")}
    assert fixed == {name.removeprefix("stream ") for name in names if name.startswith("stream")}
    assert fixed == {name.removeprefix("rows ") for name in names if name.startswith("rows")}
    assert {case.batch for case in PLAN["d"]} == {case.batch for case in PLAN["e"]} == {*BATCHES}


@pytest.mark.slow
@pytest.mark.parametrize(("kernel", "arch"), [*product(KERNELS, (90, 120))])
def test_experiment_compiles_without_spills_with_two_programs_on_a_multiprocessor(kernel: str, arch: int) -> None:
    for found in resources(kernel, [config(32, 4, 1)], arch):
        assert found.error is None
        assert (found.spill_bytes, found.byte_loads) == (0, 0), found
        assert found.matrix_loads >= found.mma > 0
        assert found.ctas_per_sm >= 2
