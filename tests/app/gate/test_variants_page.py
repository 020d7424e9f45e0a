"""The worked pair of docs/variants.md for another kernel of SGLang: read, patched and compiled as shown."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from app.environment import ROOT
from app.gate.gate import check
from app.kernel.upstream import fetch_base
from app.kernel.variants import Registry, load_variants


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with every file that the page shows under its name."""
    root = tmp_path_factory.mktemp("repository")
    page = (ROOT / "docs" / "variants.md").read_text(encoding="utf-8")
    for name, text in re.findall(r"^```yaml\n# (kernels/\S+)\n(.*?)^```", page, re.DOTALL | re.MULTILINE):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    return root


@pytest.fixture(scope="module")
def pair(repository: Path) -> Registry:
    return load_variants(repository / "kernels" / "variants", repository, strict=True)


def test_the_pages_pair_is_one_comparison(pair: Registry) -> None:
    assert (pair.names, pair.with_controls(["mla-32"])) == (("mla-32", "mla-64"), {"mla-32": "mla-64"})


def test_the_pages_pair_does_on_sm_120_what_its_hypothesis_says(pair: Registry, repository: Path) -> None:
    mine, control = pair.get("mla-32"), pair.get("mla-64")
    base = fetch_base(module=mine.target.module if mine.target else None)
    report = check(mine, control, base, signatures=repository / "kernels" / "signatures")
    assert (report.buildable(), report.same_code) == (True, False)
    assert [r.ctas_per_sm for r in (*report.resources, *report.control_resources)] == [2, 1]
