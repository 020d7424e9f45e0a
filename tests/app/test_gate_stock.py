"""The gate on SGLang's stock kernel with the installed Triton: the finding that the reference campaign lacked."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.errors import NotReadyError
from app.gate import check
from app.upstream import Base, fetch_base
from app.variants import Target, Variant, load_variants


@pytest.fixture(scope="module")
def stock() -> Base:
    try:
        return fetch_base()
    except NotReadyError as error:
        pytest.skip(f"SGLang's wheel is needed: {error}")


def on_stock(name: str, base: Base) -> Variant:
    """The variant's configs and key on SGLang's own kernel instead of ours."""
    variant = load_variants().get(name)
    change = replace(variant.change, file=None, constants={})
    return replace(variant, target=Target(base.module, str(base.kernel)), change=change)


@pytest.mark.parametrize("arch", [120, 90])
def test_v2_is_a_no_op_against_pinned_on_the_stock_kernel(stock: Base, arch: int) -> None:
    report = check(on_stock("v2", stock), on_stock("pinned", stock), stock, arch)
    assert report.same_code
    assert [r.code_sha256 for r in report.resources] == [r.code_sha256 for r in report.control_resources]
    assert not report.buildable()


def test_v3_is_refused_where_the_kernel_has_no_batch_argument(stock: Base) -> None:
    report = check(on_stock("v3", stock), None, stock)
    assert "batch_rounded" in str(report.refusal())
