"""The gate on SGLang's stock kernel with the installed Triton: the finding that the reference campaign lacked."""

from __future__ import annotations

import pytest

from app.errors import NotReadyError
from app.gate import check_named
from app.upstream import fetch_base


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


@pytest.mark.usefixtures("_stock")
def test_v3_is_refused_where_the_kernel_has_no_batch_argument() -> None:
    assert "batch_rounded" in str(check_named("v3", stock=True).refusal())
