from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

import torch

from kernels.bench import BASE, PLAN, Row, Writer
from kernels.bench_providers import variant_file
from kernels.bench_report import DOCS, RESULTS, draw, markdown_table, read_rows, with_table
from kernels.bench_timing import MAX_SETS, ROTATED_BYTES, bytes_read, set_count
from kernels.cases import Case, timed_inputs
from kernels.reference import attend
from kernels.tuning import choices

pytestmark = pytest.mark.kernel

ROW = Row("fast", 96, 16, 512, 0, "full", 25.4, 25.0, 26.0, 32.0, 0.3, 0.002)


def test_bytes_count_each_live_token_once() -> None:
    assert bytes_read(batch=2, heads=16, live_tokens=10) == 10 * 588 + 2 * 16 * 2052


def test_input_sets_outgrow_the_cache_where_their_number_allows() -> None:
    assert set_count(96, 512) * 96 * 512 * 584 >= ROTATED_BYTES
    assert set_count(1, 512) == MAX_SETS


def test_input_sets_share_the_caches_and_differ_in_what_they_name() -> None:
    first, second = timed_inputs(Case(batch=2, topk=8, extra=8, pool=128, page=64, lengths="full"), 2, "cpu")
    assert first.k_cache is second.k_cache
    assert not torch.equal(first.indices, second.indices)
    assert bool(attend(**first.arguments())[0].isfinite().all())


def test_plan_holds_the_campaigns_batches_and_every_kind_of_lengths() -> None:
    assert {case.batch for case in PLAN} >= {1, 8, 48, 64, 80, 96, 512}
    assert {case.lengths for case in PLAN} == {"full", "short", "straggler"}
    assert {case.heads for case in PLAN} == {8, 16, 32, 64}


def test_rows_are_written_as_they_come_with_their_conditions(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "rows.csv", {"device": "none"})
    writer.write(ROW)
    assert [*read_rows(tmp_path / "rows.csv").values()] == [{"fast": (25.4, 0.3)}]
    assert '"device": "none"' in (tmp_path / "rows.json").read_text()


def test_choices_of_one_shape_differ_in_their_splits_or_their_kind() -> None:
    found = [*choices(BASE, 132)]
    assert len(found) == len(set(found))
    assert {choice.merge for choice in found} == {"fused", "early", "chained"}


def test_provider_takes_any_file_with_the_entry_point(tmp_path: Path) -> None:
    path = tmp_path / "kernel.py"
    path.write_text("def flash_mla_sparse_decode_triton(q, *rest):\n    return q, len(rest)\n")
    inputs = timed_inputs(Case(batch=1, topk=4, pool=64, page=64), 1, "cpu")[0]
    provider = variant_file("any", path)
    out, rest = provider.call(inputs)
    assert out is inputs.q
    assert int(rest) == 9
    assert provider.slow


def test_table_names_each_shape_and_the_ratio_to_flashmla() -> None:
    table = markdown_table(read_rows(RESULTS / "h200.csv"))
    assert table.count("\n") == len(PLAN) + 1
    assert "| 96 | 16 | 512 | full |" in table


def test_docs_hold_the_table_of_the_committed_rows() -> None:
    text = (DOCS / "kernel.md").read_text()
    assert with_table(text, markdown_table(read_rows(RESULTS / "h200.csv"))) == text


def test_document_without_marks_is_refused() -> None:
    with pytest.raises(ValueError, match="lacks the marks"):
        with_table("no table here", "| a |")


def test_plot_is_written(tmp_path: Path) -> None:
    draw(read_rows(RESULTS / "h200_sweep.csv"), tmp_path / "plot.svg", 4.3e6)
    assert "<svg" in (tmp_path / "plot.svg").read_text()
