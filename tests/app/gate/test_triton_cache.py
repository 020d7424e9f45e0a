from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from app.errors import ProofError
from app.gate.gate import check
from app.gate.prebuilt import Prebuilt
from app.gate.seeding import seed
from app.gate.triton_cache import read_entries
from app.kernel.upstream import fetch_base
from app.kernel.variants import load_variants

METADATA = {"num_warps": 4, "num_stages": 2, "shared": 24960, "hash": "ab", "target": {"arch": 90}, "name": "_kernel"}


def write(folder: Path, key: str, age_s: float = 0, **changes: Any) -> None:
    path = folder / key / "_kernel.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(METADATA | changes))
    os.utime(path, (1000 - age_s, 1000 - age_s))


def test_entries_are_read_as_triton_wrote_them(tmp_path: Path) -> None:
    write(tmp_path, "KEY")
    (entry,) = read_entries(tmp_path, "_kernel")
    assert (entry.key, entry.num_warps, entry.num_stages, entry.shared, entry.target) == ("KEY", 4, 2, 24960, 90)
    assert (entry.registers, entry.code_sha256) == (None, None)


def test_only_what_was_written_since_is_new(tmp_path: Path) -> None:
    write(tmp_path, "A", age_s=10)
    write(tmp_path, "B")
    assert [e.new for e in read_entries(tmp_path, "_kernel", since=995)] == [False, True]


def test_other_kernels_entries_are_left_out(tmp_path: Path) -> None:
    write(tmp_path, "A")
    assert read_entries(tmp_path, "_another") == ()


def test_metadata_of_an_unknown_triton_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "A" / "_kernel.json"
    path.parent.mkdir()
    path.write_text("{}")
    with pytest.raises(ProofError, match="lacks num_warps"):
        read_entries(tmp_path, "_kernel")


@pytest.mark.kernel
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:TRITON_DEFAULT_FP_FUSION")
def test_registers_and_code_of_an_entry_are_those_that_the_gate_found(pinned_entries: Prebuilt, tmp_path: Path) -> None:
    seed(pinned_entries, pinned_entries.__getitem__, tmp_path)
    gate = check(load_variants().get("pinned"), None, fetch_base())
    predicted = {(r.registers, r.code_sha256, r.shared_bytes) for r in gate.resources}
    entries = read_entries(tmp_path, "_sparse_mla_decode_kernel")
    assert {(e.registers, e.code_sha256, e.shared) for e in entries} > predicted
    # The third is of pages of two tokens: other code that needs the same.
    assert len(entries) == 3
    assert {(e.registers, e.shared) for e in entries} == {(r, s) for r, _, s in predicted}
