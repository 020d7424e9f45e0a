"""The registry of variants: what ships, which control joins a campaign, what several files together get wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.errors import UsageError, VariantError
from app.kernel.variants import ROOT, TABLE_COLUMNS, VARIANTS, KernelConfig, load_variants, table_rows

PINNED = "name: pinned\nselector: triton\ntarget: {module: sglang.x, kernel: k}\nhypothesis: h\nstatus: control\n"


def folder_of(tmp_path: Path, **texts: str) -> Path:
    for name, text in texts.items():
        (tmp_path / f"{name}.yaml").write_text(text)
    return tmp_path


def test_every_variant_of_the_reference_campaign_ships() -> None:
    shipped = {"aa", "baseline", "fast", "flashinfer", "flashmla", "pinned", "upstream", "v1", "v2", "v3"}
    assert set(load_variants().names) == shipped


@pytest.mark.parametrize(
    ("name", "configs"),
    [
        ("baseline", "(16,4,2) (32,4,2) (32,8,2)"),
        ("pinned", "(16,4,2)"),
        ("v1", "(16,8,2)"),
        ("v2", "(16,4,3)"),
        ("v3", "(16,4,2) (16,4,3)"),
    ],
)
def test_shipped_configs_are_the_reference_campaigns(name: str, configs: str) -> None:
    assert " ".join(map(str, load_variants().get(name).change.configs or ())) == configs


@pytest.mark.parametrize("name", ["flashinfer", "flashmla"])
def test_outer_controls_change_only_the_selector(name: str) -> None:
    variant = load_variants().get(name)
    assert (variant.selector, variant.target, variant.change.empty) == (name, None, True)


def test_v3_puts_the_batch_into_the_key() -> None:
    assert load_variants().get("v3").change.key == ("topk_rounded", "batch_rounded")


def test_a_copy_that_kept_its_first_name_is_the_one_refused(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, mine=PINNED, pinned=PINNED)
    with pytest.raises(VariantError, match=r"mine.yaml:1: name: 'pinned' is already the name of .*pinned.yaml; choose"):
        load_variants(folder)


def test_a_name_used_twice_is_refused_naming_both_files(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, a=PINNED, b=PINNED)
    with pytest.raises(VariantError, match=r"b.yaml:1: name: 'pinned' is already the name of a.yaml"):
        load_variants(folder, tmp_path)


def test_an_unknown_control_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(VariantError, match=r"mine.yaml:6: control: unknown variant 'pinned'; known: mine"):
        load_variants(folder_of(tmp_path, mine=PINNED.replace("pinned", "mine") + "control: pinned\n"), tmp_path)


def test_a_ring_of_controls_is_refused(tmp_path: Path) -> None:
    texts = {n: PINNED.replace("pinned", n) + f"control: {c}\n" for n, c in [("a", "b"), ("b", "c"), ("c", "b")]}
    with pytest.raises(VariantError, match=r"a.yaml:6: control: controls form a ring: b -> c -> b"):
        load_variants(folder_of(tmp_path, **texts), tmp_path)


def test_a_folder_without_variants_is_refused(tmp_path: Path) -> None:
    with pytest.raises(VariantError, match="holds no variant"):
        load_variants(tmp_path)


def test_a_missing_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(VariantError, match="is no folder of variants"):
        load_variants(tmp_path / "none")


def test_a_file_with_the_other_suffix_is_not_ignored_in_silence(tmp_path: Path) -> None:
    (tmp_path / "v9.yml").write_text(PINNED)
    with pytest.raises(VariantError, match=r"rename it to end in \.yaml"):
        load_variants(tmp_path)


@pytest.mark.parametrize(
    ("names", "pairs"),
    [
        (["v1"], {"v1": "pinned"}),
        (["v1", "v2"], {"v1": "pinned", "v2": "pinned"}),
        (["baseline", "v1", "v2"], {"v1": "pinned", "v2": "pinned", "pinned": "baseline"}),
        (["flashinfer", "upstream", "v1", "v1"], {"upstream": "flashinfer", "v1": "pinned"}),
    ],
)
def test_each_named_variant_gets_its_control(names: list[str], pairs: dict[str, str]) -> None:
    assert load_variants().with_controls(names) == pairs


def test_a_named_control_that_nothing_uses_is_refused() -> None:
    with pytest.raises(UsageError, match=r"'flashinfer' would be compared with nothing; .*: upstream"):
        load_variants().with_controls(["flashinfer", "v1"])


def test_an_unknown_variant_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match=r"unknown variant 'v9'; known: aa, baseline, "):
        load_variants().with_controls(["v9"])


def test_no_variant_is_refused() -> None:
    with pytest.raises(UsageError, match="no variant given"):
        load_variants().with_controls([])


def test_the_table_has_a_row_a_variant() -> None:
    registry = load_variants()
    rows = {row[0]: dict(zip(TABLE_COLUMNS, row, strict=True)) for row in table_rows(registry.variants.values())}
    assert set(rows) == set(registry.names)
    assert rows["v1"]["prediction, %"] == "C=64: +15..+25; C=80: +15..+25; C=96: +15..+25"


def test_a_config_names_its_constants_unless_it_has_only_block_t() -> None:
    assert (
        str(KernelConfig({"BLOCK_H": 16, "BLOCK_N": 64}, 4, 1)) == "(BLOCK_H=16, BLOCK_N=64, num_warps=4, num_stages=1)"
    )
    assert str(KernelConfig({"BLOCK_T": 16}, 4, 2)) == "(16,4,2)"


def test_shipped_files_lie_where_the_registry_looks() -> None:
    assert all((ROOT / variant.path).parent == VARIANTS for variant in load_variants().variants.values())
