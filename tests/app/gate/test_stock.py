"""The gate on kernels of SGLang's wheel with the installed Triton, the reference campaign's finding among them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from app.environment import ROOT
from app.errors import NotReadyError
from app.gate.gate import check
from app.gate.named import check_named
from app.kernel.upstream import fetch_base
from app.kernel.variant import Change, KernelConfig, Target
from app.kernel.variants import load_variants


@pytest.fixture(scope="module")
def _stock() -> None:
    try:
        fetch_base()
    except NotReadyError as error:
        pytest.skip(f"SGLang's wheel is needed: {error}")


@pytest.mark.usefixtures("_stock")
@pytest.mark.parametrize("arch", [120, 90])
def test_v2_is_a_no_op_against_pinned_on_the_stock_kernel(arch: int) -> None:
    report = check_named("v2", arch=arch, stock=True)
    assert report.same_code
    assert [r.code_sha256 for r in report.resources] == [r.code_sha256 for r in report.control_resources]
    assert not report.buildable()
    page = (ROOT / "docs" / "example.md").read_text(encoding="utf-8")
    assert f"\nno-op: {report.findings[0].what.partition(' (sm_')[0]}\n" in page


@pytest.mark.usefixtures("_stock")
def test_v3_is_refused_where_the_kernel_has_no_batch_argument() -> None:
    assert "batch_rounded" in str(check_named("v3", stock=True).refusal())


SCALE_SHIFT = """\
kernel: _fused_scale_shift_4d_kernel
arguments: {output_ptr: '*bf16:16', normalized_ptr: '*bf16:16', scale_ptr: '*bf16:16', shift_ptr: '*bf16:16',
            inner_dim: 'i32:16', seq_len: 'i32:16', num_frames: 'i32=1', frame_seqlen: 'i32:16'}
constants: {scale_constant: 1}
"""


@pytest.mark.usefixtures("_stock")
def test_any_autotuned_kernel_passes_the_gate_once_it_has_a_signature_file(tmp_path: Path) -> None:
    module, kernel = "sglang.kernels.ops.diffusion.triton.scale_shift", "_fused_scale_shift_4d_kernel"
    (tmp_path / f"{kernel}.yaml").write_text(SCALE_SHIFT)
    configs = (KernelConfig({"BLOCK_N": 512}, 4, 2), KernelConfig({"BLOCK_N": 1024}, 8, 2))
    variant = replace(
        load_variants().get("upstream"), target=Target(module, kernel), change=Change(configs=configs), control=None
    )
    report = check(variant, None, fetch_base(module=module), signatures=tmp_path)
    assert [finding.kind for finding in report.findings] == ["draw"]
    assert [resources.fits for resources in report.resources] == [True, True]
