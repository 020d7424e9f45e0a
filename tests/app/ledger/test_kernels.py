from __future__ import annotations

import csv
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from app.errors import RecordsError
from app.gate.report import Finding
from app.ledger import kernels
from app.ledger.kernels import record_kernels

CONDITIONS = {"device": "a card", "driver": "1", "torch": "2", "triton": "3", "date": "2026-11-29T20:25", "method": "m"}


def gate(name: str, *, stock: bool) -> Any:
    found = (Finding("no-op", "same machine code as its control"),) if stock else ()
    return SimpleNamespace(arch=120, triton_version="3.9.0", findings=found, resources=())


def benchmark(folder: Path, *rows: tuple[str, int, float]) -> Path:
    path = folder / "h200.csv"
    with path.open("w", newline="") as out:
        writer = csv.writer(out)
        writer.writerow(("provider", "batch", "heads", "topk", "extra", "lengths", "median_us", "low_us", "high_us"))
        writer.writerows((name, batch, 16, 512, 0, "full", us, 0.99 * us, 1.01 * us) for name, batch, us in rows)
        writer.writerow(("v1", 96, 64, 512, 0, "full", 1, 1, 1))
    path.with_suffix(".json").write_text(json.dumps(CONDITIONS | {"command": "bench"}))
    return path


def test_an_entry_sets_each_variants_time_beside_its_controls(tmp_path: Path) -> None:
    rows = (("pinned", 1, 20.0), ("v1", 1, 20.1), ("pinned", 96, 40.0), ("v1", 96, 60.0), ("stock", 96, 2000.0))
    entry = record_kernels(benchmark(tmp_path, *rows), tmp_path / "EXPERIMENTS.md", gate)
    assert "| 96 | 40.0 | 60.0 | 1.50 | 1.47 to 1.53 |" in entry
    assert "- Conclusion: slower at batch 96; not told apart at batch 1" in entry
    assert "SGLang's own kernel, compiled with Triton 3.9.0, never launched: same machine code as its control" in entry
    assert "stock" not in entry


def test_the_same_benchmark_replaces_its_entry(tmp_path: Path) -> None:
    ledger = tmp_path / "EXPERIMENTS.md"
    for us in (60.0, 50.0):
        record_kernels(benchmark(tmp_path, ("pinned", 96, 40.0), ("v1", 96, us)), ledger, gate)
    assert ledger.read_text().count("### v1 against pinned") == 1
    assert "| 50.0 |" in ledger.read_text()


def test_a_benchmark_without_a_control_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RecordsError, match="no variant beside its control"):
        record_kernels(benchmark(tmp_path, ("v1", 96, 60.0)), tmp_path / "EXPERIMENTS.md", gate)


def test_a_file_that_is_no_benchmark_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("a,b\n1,2\n")
    (tmp_path / "x.json").write_text("{}")
    with pytest.raises(RecordsError, match="no benchmark of kernels"):
        record_kernels(tmp_path / "x.csv", tmp_path / "EXPERIMENTS.md", gate)


def test_the_ledger_that_holds_a_benchmark_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(kernels, "record_kernels", lambda _: "the entry")
    kernels.show_entry(str(tmp_path / "x.csv"), False)
    assert capsys.readouterr().out == "the entry\n\nledger: EXPERIMENTS.md\n"
