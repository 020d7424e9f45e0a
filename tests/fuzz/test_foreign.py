from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from app.errors import RecordsError
from loadtest.importing.foreign import read_runs
from loadtest.importing.runs import import_campaign
from tests.fuzz.trying import damaged, refusal, torn, tries

REAL = Path(__file__).resolve().parent.parent / "loadtest" / "importing" / "foreign"
SGLANG = {
    "request_rate": float("inf"), "max_concurrency": 2, "duration": 2.0, "total_output_tokens": 4,
    "input_lens": [3, 3], "output_lens": [2, 2], "ttfts": [1.0, 1.0], "itls": [[1.0], [1.0]], "errors": ["", ""],
}  # fmt: skip
AIPERF = {
    "metadata": {"request_start_ns": 10**9, "request_end_ns": 3 * 10**9, "benchmark_phase": "profiling"},
    "metrics": {"time_to_first_token": {"value": 5.0, "unit": "ms"}, "output_sequence_length": {"value": 2},
                "input_sequence_length": {"value": 3}, "inter_chunk_latency": {"value": [5.0], "unit": "ms"}},
    "error": None,
}  # fmt: skip
DONE = {
    "request_start_time": 1.0, "request_end_time": 3.0, "time_to_first_token_ms": 5.0, "output_tokens": 2,
    "prompt_tokens": 3, "info": {"timings": {"last_token_iteration": 2.5}},
}  # fmt: skip
GUIDELLM = {"benchmarks": [{"requests": {"successful": [DONE], "incomplete": [], "errored": []}}]}
TABLE = "block,start,variant,file\n" + "".join(
    f"{b},{s},{v},{v}.jsonl\n" for b in range(3) for s, v in enumerate(("pinned", "v1", "v1", "pinned"))
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("imported")


def read(path: Path, data: bytes) -> str:
    path.write_bytes(data)
    return refusal(lambda: read_runs(path))


def dumped(value: Any) -> bytes:
    return json.dumps(value).encode()


@tries(250)
@given(value=damaged(SGLANG) | damaged(AIPERF))
@example(value=SGLANG | {"max_concurrency": 10**12})
@example(value=SGLANG | {"ttfts": [float("nan"), 1.0]})
def test_any_value_at_any_place_of_a_line_is_read_or_refused(folder: Path, value: object) -> None:
    read(folder / "any.jsonl", dumped(value))


@tries(120)
@given(value=damaged(GUIDELLM))
def test_any_value_at_any_place_of_a_document_is_read_or_refused(folder: Path, value: object) -> None:
    read(folder / "any.json", dumped(value))


@tries(60)
@given(data=st.data(), name=st.sampled_from(["aiperf-0.13.0.jsonl", "guidellm-0.8.1.json"]))
def test_torn_file_of_a_real_tool_is_read_or_refused(folder: Path, data: st.DataObject, name: str) -> None:
    read(folder / name, data.draw(torn((REAL / name).read_bytes())))


def test_good_files_are_read(folder: Path) -> None:
    assert read(folder / "a.jsonl", dumped(SGLANG)) == read(folder / "b.json", dumped(GUIDELLM)) == ""


def test_deep_nesting_is_refused(folder: Path) -> None:
    assert "malformed" in read(folder / "deep.json", b"[" * 100_000)


@tries(60)
@given(data=torn(TABLE.encode()) | st.binary(max_size=60))
def test_any_table_is_imported_or_refused(folder: Path, data: bytes) -> None:
    for name in ("pinned", "v1"):
        (folder / f"{name}.jsonl").write_bytes(dumped(SGLANG))
    (folder / "import.csv").write_bytes(data)
    refusal(lambda: import_campaign(folder, {"v1": "pinned"}))


@pytest.mark.parametrize("file", ["../secret.jsonl", "/secret.jsonl", "link.jsonl", "sub/../../secret.jsonl"])
def test_a_table_that_names_a_file_outside_its_folder_is_refused(tmp_path: Path, file: str) -> None:
    inside = tmp_path / "results"
    inside.mkdir()
    shutil.copy(REAL / "aiperf-0.13.0.jsonl", tmp_path / "secret.jsonl")
    (inside / "link.jsonl").symlink_to(tmp_path / "secret.jsonl")
    named = str(tmp_path / file[1:]) if file.startswith("/") else file
    (inside / "import.csv").write_text(f"block,start,variant,file\n0,0,v1,{named}\n0,1,pinned,{named}\n")
    with pytest.raises(RecordsError, match=r"import.csv:2: .* leads out of"):
        import_campaign(inside, {"v1": "pinned"})
