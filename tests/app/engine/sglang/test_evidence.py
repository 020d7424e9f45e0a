from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.engine.sglang.evidence import agree, check_imported, chosen, ran
from app.engine.sglang.package import PrivatePackage
from app.engine.sglang.plugin.decode_ab_hooks import started_at
from app.engine.sglang.running import Running
from app.engine.sglang.witness import attending, read_testimonies
from app.errors import ProofError
from app.gate.triton_cache import CacheEntry
from app.kernel.placed import PlacedKernel
from app.kernel.variant import KernelConfig
from kernels.resources import Resources

ENTRY = CacheEntry("KEY", 4, 2, 100, "ab", 90, 40, "cd", True)
CONFIGS = [KernelConfig({"BLOCK_T": 16}, 4, 2), KernelConfig({"BLOCK_T": 32}, 8, 2)]
PREDICTED = [Resources(c, 90, "3.6.0", shared_bytes=100, registers=40, num_warps=c.num_warps, code_sha256="cd")
             for c in CONFIGS]  # fmt: skip
KERNEL = PlacedKernel("baseline", "triton", Path("k.py"), "ab", "cd", "_kernel")
PRINTED = (
    "Triton autotuning for function {function},\nwith key as (512, 'torch.bfloat16'),\nfinished after 0.41s,\n"
    "best config selected: BLOCK_T: {block}, num_warps: {warps}, num_ctas: 1, num_stages: 2, maxnreg: None;\n"
)


CALL = {"heads": 16, "own": 16, "launched": 16}


def write_down(folder: Path, **changes: Any) -> None:
    own = {"pid": os.getpid(), "started": started_at(os.getpid()), "calls": [CALL]}
    told = own | {"kernel_file": "/k.py", "kernel_sha256": "ab", "selector": "triton", "path": "decode"} | changes
    (folder / f"{told['pid']}.json").write_text(json.dumps(told))


def test_an_entry_of_the_predicted_configuration_and_code_agrees_exactly() -> None:
    found = agree([ENTRY], PREDICTED)
    assert (found.faults, found.exact) == ((), True)


def test_equal_shape_with_other_code_agrees_but_not_exactly() -> None:
    found = agree([replace(ENTRY, code_sha256="ef", registers=48)], PREDICTED)
    assert (found.faults, found.exact) == ((), False)


def test_other_code_of_a_launch_that_the_gate_leaves_out_agrees_exactly() -> None:
    found = agree(
        [ENTRY, replace(ENTRY, code_sha256="ef")], PREDICTED, lambda: [replace(PREDICTED[0], code_sha256="ef")]
    )
    assert found.exact


@pytest.mark.parametrize("change", [{"num_warps": 2}, {"num_stages": 3}, {"shared": 101}])
def test_an_entry_of_another_configuration_is_a_fault(change: dict[str, Any]) -> None:
    assert "the gate predicts 4/2/100, 8/2/100" in agree([replace(ENTRY, **change)], PREDICTED).faults[0]


def test_a_variant_that_runs_no_kernel_of_the_file_has_nothing_to_agree_with() -> None:
    assert agree([], []).exact


def test_the_autotuners_choice_is_read_from_the_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(
        PRINTED.format(function="_another", block=16, warps=4) + PRINTED.format(function="_kernel", block=32, warps=8)
    )
    assert chosen(log, KERNEL, PREDICTED) == ("(32,8,2)",)


def test_without_a_word_of_the_autotuner_its_draw_is_not_known(tmp_path: Path) -> None:
    assert chosen(tmp_path / "none", KERNEL, PREDICTED) == ()
    assert ran((), ("(16,4,2)", "(32,8,2)"), PREDICTED) == "not told, one of (16,4,2) (32,8,2)"


def test_a_table_runs_all_that_it_holds_and_a_list_of_one_that_one() -> None:
    assert ran((), (), PREDICTED) == "(16,4,2) (32,8,2)"
    assert ran((), ("(16,4,2)",), PREDICTED[:1]) == "(16,4,2)"


def test_a_living_process_is_believed(tmp_path: Path) -> None:
    write_down(tmp_path)
    assert attending(read_testimonies(tmp_path, os.getpid())).heads == 16


def test_a_kernel_that_leaves_out_heads_of_its_rank_proves_nothing(tmp_path: Path) -> None:
    write_down(tmp_path, calls=[CALL | {"heads": 64, "launched": 8}])
    seen = attending(read_testimonies(tmp_path, os.getpid()))
    package = PrivatePackage(tmp_path, seen.kernel_file, "ab")
    running = Running(KERNEL, package, 90, 16, "decode", tmp_path, tmp_path, 0.0)
    with pytest.raises(ProofError, match="launched for 8 of the 16 heads of its rank"):
        check_imported(seen, running)


def test_what_an_earlier_process_of_the_same_number_wrote_is_not(tmp_path: Path) -> None:
    write_down(tmp_path, started="1")
    with pytest.raises(ProofError, match="no process of the service wrote"):
        read_testimonies(tmp_path, os.getpid())


def test_what_a_foreign_process_wrote_is_not_believed(tmp_path: Path) -> None:
    write_down(tmp_path, pid=os.getppid(), started=started_at(os.getppid()))
    with pytest.raises(ProofError, match="no process of the service wrote"):
        read_testimonies(tmp_path, os.getpid())


def test_processes_that_contradict_each_other_prove_nothing(tmp_path: Path) -> None:
    write_down(tmp_path)
    (one,) = read_testimonies(tmp_path, os.getpid())
    with pytest.raises(ProofError, match="run different kernels"):
        attending((one, replace(one, kernel_sha256="ff")))
