from __future__ import annotations

import os
import resource
from dataclasses import replace
from pathlib import Path

import pytest

from app.campaign.neighbours import keep_cards
from app.campaign.runs import RunFolder
from app.campaign.runtimes import Setup
from app.doctor.resources import cpus, labs, load, memory, open_files, processors, runs_disk, shared_memory, size_bytes
from app.records import owned
from tests.app.doctor.machine import machine, put

GIB_IN_KB = 1024**2


def with_memory(root: Path, gib: int) -> None:
    put(root, "proc/meminfo", f"MemTotal:       {gib * GIB_IN_KB} kB\nMemAvailable:   {gib * GIB_IN_KB} kB\n")


@pytest.mark.parametrize(("free_gib", "status"), [(0.5, "fail"), (3, "warn"), (50, "ok")])
def test_a_campaign_needs_room_for_its_records(tmp_path: Path, free_gib: float, status: str) -> None:
    assert runs_disk(machine(tmp_path, free_gib=free_gib)).status == status


@pytest.mark.parametrize(
    ("text", "size"),
    [("32gb", 32 * 1024**3), ("64m", 64 * 1024**2), ("1.5G", 3 * 1024**3 // 2), ("7", 7), ("all", None)],
)
def test_a_size_is_read_as_compose_reads_it(text: str, size: int | None) -> None:
    assert size_bytes(text) == size


@pytest.mark.parametrize(
    ("size", "gib", "status"), [("32gb", 512, "ok"), ("64mb", 512, "warn"), ("32gb", 48, "warn"), ("much", 512, "fail")]
)
def test_shared_memory_fits_between_nccl_and_the_host(tmp_path: Path, size: str, gib: int, status: str) -> None:
    with_memory(tmp_path, gib)
    assert shared_memory(machine(tmp_path, shm_size=size)).status == status


@pytest.mark.parametrize(
    ("limits", "nr_open", "status", "remedy"),
    [
        ((256, 65536), "1048576", "fail", "ulimit -n 4096"),
        ((256, 1024), "1048576", "fail", "ulimit -n 1024"),
        ((1024, 65536), "1048576", "ok", ""),
        ((-1, -1), "1048576", "ok", ""),
        ((4096, 4096), "65536", "fail", "sysctl fs.nr_open"),
    ],
)
def test_open_files_suffice_for_client_and_containers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limits: tuple[int, int], nr_open: str, status: str, remedy: str
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits)
    put(tmp_path, "proc/sys/fs/nr_open", nr_open)
    finding = open_files(machine(tmp_path))
    assert (finding.status, remedy in finding.remedy) == (status, True)


@pytest.mark.parametrize(("average", "status"), [("0.10", "ok"), ("64.00", "warn"), ("", "skipped")])
def test_other_work_on_the_cpus_is_warned_of(tmp_path: Path, average: str, status: str) -> None:
    put(tmp_path, "proc/loadavg", f"{average} 1.0 1.0 1/2 3\n" if average else "")
    assert load(machine(tmp_path)).status == status


def test_a_lab_at_work_is_warned_of_by_its_campaign(tmp_path: Path) -> None:
    host = machine(tmp_path)
    assert labs(host).status == "ok"
    with owned(host.runs / "a"):
        assert (labs(host).status, labs(host).found) == ("warn", "a lab measures a now")
    assert labs(host).status == "ok"


def test_a_lab_at_work_on_other_cards_is_no_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host = replace(machine(tmp_path, engine="sglang"), runtime="local")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    with owned(host.runs / "a"):
        keep_cards(RunFolder(host.runs / "a"), Setup(engine="sglang"))
        assert labs(host).status == "warn"
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
        assert labs(host).status == "ok"
        assert labs(host).found.startswith("a lab measures a on cards 1, which are others than here")


@pytest.mark.parametrize(("engine", "gib", "status"), [("sim", 1, "warn"), ("sim", 8, "ok"), ("sglang", 8, "warn")])
def test_memory_wanted_depends_on_the_engine(tmp_path: Path, engine: str, gib: int, status: str) -> None:
    with_memory(tmp_path, gib)
    assert memory(machine(tmp_path, engine=engine)).status == status


@pytest.mark.parametrize(
    ("engine", "here", "status"), [("sim", 1, "warn"), ("sim", 2, "ok"), ("sglang", 11, "warn"), ("sglang", 12, "ok")]
)
def test_the_client_needs_cpus_beside_the_servers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str, here: int, status: str
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(here)))
    assert processors(machine(tmp_path, engine=engine)).status == status


@pytest.mark.parametrize(("quota", "usable"), [("max 100000", 8), ("150000 100000", 1.5), ("900000 100000", 8)])
def test_a_quota_limits_the_cpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quota: str, usable: float) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    put(tmp_path, "sys/fs/cgroup/cpu.max", quota)
    assert cpus(machine(tmp_path)) == usable
