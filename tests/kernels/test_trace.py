"""Launches are read from Kineto traces of any size; what is no trace is refused."""

from __future__ import annotations

import json
import time
import tracemalloc
from pathlib import Path

import pytest

from kernels.trace import Device, Launch, TraceError, read_device, read_launches
from tests.kernels.made_trace import STOCK, launch, write_trace


def test_equal_launches_are_one_group_with_their_times(tmp_path: Path) -> None:
    (group,) = read_launches(write_trace(tmp_path / "t.json", launch(dur=40.0), launch(dur=50.0)), STOCK)
    assert group.launch == Launch((8, 16, 1), (256, 1, 1), 255, 16384)
    assert (group.count, group.total_us, group.mean_us, group.least_us, group.most_us) == (2, 90.0, 45.0, 40.0, 50.0)


def test_other_launches_are_other_groups_and_most_time_comes_first(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "t.json", launch(dur=1.0), launch(dur=9.0, grid=(96, 16, 1)), launch(name="gemm"))
    assert [group.launch.grid[0] for group in read_launches(path, STOCK)] == [96, 8]


@pytest.mark.parametrize(
    ("name", "found"), [(f"{STOCK}_0d1d2d3c4de", True), (f"{STOCK}_v2", False), (f"my{STOCK}", False)]
)
def test_old_tritons_suffix_is_the_same_kernel_and_other_names_are_not(tmp_path: Path, name: str, found: bool) -> None:
    path = write_trace(tmp_path / "t.json", launch(), launch(name=name))
    assert sum(group.count for group in read_launches(path, STOCK)) == 1 + found


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("void sm90::decode::k<(Type)1, sm90::Params<int>>(sm90::Params<int>)", True),
        ("space::k(Args)", True),
        ("void (anonymous namespace)::k<float>(Args)", True),
        ("void fused::norm_k<float>(Args)", False),
        ("void space::kk(Args)", False),
    ],
)
def test_a_kernel_of_cpp_is_known_by_its_name_alone(tmp_path: Path, name: str, found: bool) -> None:
    path = write_trace(tmp_path / "t.json", launch(name="k"), launch(name=name))
    assert sum(group.count for group in read_launches(path, "k")) == 1 + found


def test_a_hostile_name_is_read_as_fast_as_any(tmp_path: Path) -> None:
    names = [f"k_{'1' * 5000}!", f"void {'a::' * 5000}!", "void " + "(anonymous namespace)::" * 500]
    path = write_trace(tmp_path / "t.json", launch(name="k"), *[launch(name=name) for name in names])
    began = time.monotonic()
    assert [group.count for group in read_launches(path, "k")] == [1]
    assert time.monotonic() - began < 2


def test_packed_trace_and_bare_list_of_events_are_read_alike(tmp_path: Path) -> None:
    packed = write_trace(tmp_path / "t.json.gz", launch())
    bare = tmp_path / "bare.json"
    bare.write_text(f"  {json.dumps([launch()])}")
    assert read_launches(packed, STOCK) == read_launches(bare, STOCK)


def test_device_is_the_one_in_the_head(tmp_path: Path) -> None:
    assert read_device(write_trace(tmp_path / "t.json", launch())) == Device("NVIDIA H200", 90)
    assert read_device(write_trace(tmp_path / "u.json", launch(), device=None)) is None


def test_missing_kernel_is_refused_with_the_kernels_that_are_there(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=f"no launch of {STOCK}; most time is in gemm"):
        read_launches(write_trace(tmp_path / "t.json", launch(name="gemm")), STOCK)


@pytest.mark.parametrize("name", ["t.json", "t.json.gz"])
def test_trace_that_is_cut_off_is_refused(tmp_path: Path, name: str) -> None:
    path = write_trace(tmp_path / name, launch(), launch())
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(TraceError, match="no whole JSON trace"):
        read_launches(path, STOCK)


@pytest.mark.parametrize("data", [b"", b"not json", b"\x1f\x8bnot gzip", b"\xff\xfe", b'{"a": 1}', b"[]"])
def test_what_is_no_trace_is_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "t.json").write_bytes(data)
    with pytest.raises(TraceError):
        read_launches(tmp_path / "t.json", STOCK)


def test_absent_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="cannot read trace"):
        read_launches(tmp_path / "t.json", STOCK)


def test_launch_without_registers_is_refused(tmp_path: Path) -> None:
    event = launch()
    del event["args"]["registers per thread"]
    with pytest.raises(TraceError, match="registers per thread"):
        read_launches(write_trace(tmp_path / "t.json", event), STOCK)


def _peak_bytes(path: Path) -> int:
    tracemalloc.start()
    read_launches(path, STOCK)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak


def test_memory_does_not_grow_with_the_trace(tmp_path: Path) -> None:
    small = write_trace(tmp_path / "small.json", *[launch()] * 500)
    large = write_trace(tmp_path / "large.json", *[launch()] * 5000)
    _peak_bytes(small)
    assert _peak_bytes(large) < 1.2 * _peak_bytes(small)
