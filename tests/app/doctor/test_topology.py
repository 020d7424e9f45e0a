from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from app.command import Ran
from app.doctor.topology import access_control, iommu, links, peer_matrix, peers, redirecting_bridges
from tests.app.doctor.machine import QUERY, gpus, machine, put

LEGEND = "\nLegend:\n\n  X    = Self\n  OK   = Status Ok\n  CNS  = Chipset not supported\n  NS   = Not supported\n"
BARRED = f" \t\x1b[4mGPU0\tGPU1\x1b[0m\t\n GPU0\tX\tCNS\t\n GPU1\tCNS\tX\t\n{LEGEND}"
LINKS = (
    "\t\x1b[4mGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m\n"
    "GPU0\t X \tPHB\t0-31\t0\t\tN/A\nGPU1\tPHB\t X \t0-31\t0\t\tN/A\n"
)
BRIDGES = (
    "00:01.0 PCI bridge: Intel Corporation Device 352a (rev 30)\n\tCapabilities: [148 v1] Access Control Services\n"
    "\t\tACSCap:\tSrcValid+ TransBlk+ ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl- DirectTrans-\n"
    "\t\tACSCtl:\tSrcValid- TransBlk- ReqRedir- CmpltRedir- UpstreamFwd- EgressCtrl- DirectTrans-\n\n"
    "0001:15:01.0 PCI bridge: Broadcom PEX890xx\n"
    "\t\tACSCtl:\tSrcValid+ TransBlk- ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl- DirectTrans-\n"
)
TWO: dict[str, Any] = {"prefill_tp": 1, "decode_tp": 1, "decode_first_gpu": 1}


def matrix(count: int) -> str:
    heading = "\t".join(f"GPU{i}" for i in range(count))
    rows = (f" GPU{i}\t" + "\t".join("X" if i == j else "OK" for j in range(count)) + "\t\n" for i in range(count))
    return f" \t{heading}\t\n{''.join(rows)}{LEGEND}"


def test_a_peer_matrix_is_read_by_pairs() -> None:
    assert peer_matrix(BARRED) == {(0, 0): "X", (0, 1): "CNS", (1, 0): "CNS", (1, 1): "X"}


def test_links_are_told_without_affinities_and_escapes(tmp_path: Path) -> None:
    assert links(machine(tmp_path, {"nvidia-smi topo -m": LINKS})) == "PHB"


@pytest.mark.parametrize(
    ("read", "write", "status", "says"),
    [
        (matrix(2), matrix(2), "ok", "GPU 0, 1 (PHB)"),
        (BARRED, matrix(2), "warn", "0-1 read CNS"),
        (matrix(2), BARRED, "warn", "0-1 write CNS"),
        (Ran(1, err="Invalid command"), matrix(2), "warn", "Invalid command"),
    ],
)
def test_peers_must_read_and_write(tmp_path: Path, read: Ran | str, write: str, status: str, says: str) -> None:
    answers = {
        QUERY: gpus(2),
        "nvidia-smi topo -p2p r": read,
        "nvidia-smi topo -p2p w": write,
        "nvidia-smi topo -m": LINKS,
    }
    finding = peers(machine(tmp_path, answers, **TWO))
    assert (finding.status, says in finding.found) == (status, True)
    assert status == "ok" or "--disable-custom-all-reduce" in finding.remedy


def test_gpus_that_no_role_uses_may_be_barred(tmp_path: Path) -> None:
    odd = matrix(3).replace(" GPU0\tX\tOK\tOK", " GPU0\tX\tOK\tCNS")
    answers = {QUERY: gpus(3), "nvidia-smi topo": odd}
    assert peers(machine(tmp_path, answers, **TWO)).status == "ok"


@pytest.mark.parametrize(
    ("kinds", "status"),
    [((), "ok"), (("identity", "identity"), "ok"), (("identity", "DMA-FQ"), "warn"), (("DMA",), "warn")],
)
def test_a_translating_iommu_is_warned_of(tmp_path: Path, kinds: tuple[str, ...], status: str) -> None:
    for number, kind in enumerate(kinds):
        put(tmp_path, f"sys/kernel/iommu_groups/{number}/type", f"{kind}\n")
    assert iommu(machine(tmp_path)).status == status


@pytest.mark.parametrize(
    ("answers", "status", "says"),
    [
        ({}, "skipped", "no lspci"),
        ({"lspci": "00:01.0 PCI bridge: x\n\tCapabilities: <access denied>\n"}, "skipped", "may not read"),
        ({"lspci": "00:01.0 Host bridge: x\n"}, "ok", "no bridge with access control"),
        ({"lspci": BRIDGES}, "warn", "1 bridges redirect peer traffic: 0001:15:01.0"),
        (
            {"lspci": BRIDGES.replace("ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl- DirectTrans-\n", "ReqRedir-\n")},
            "ok",
            "",
        ),
    ],
)
def test_bridges_that_redirect_are_named(tmp_path: Path, answers: dict[str, Ran | str], status: str, says: str) -> None:
    finding = access_control(machine(tmp_path, answers))
    assert (finding.status, says in finding.found) == (status, True)


def test_only_control_and_not_ability_makes_a_bridge_redirect() -> None:
    assert redirecting_bridges(BRIDGES) == ["0001:15:01.0"]
