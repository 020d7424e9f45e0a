"""The registry of variants: what ships, which control joins a campaign, what several files together get wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.environment import ROOT
from app.errors import UsageError, VariantError
from app.kernel.variant import KernelConfig
from app.kernel.variants import TABLE_COLUMNS, VARIANTS, load_variants, table_rows

MODULES = "name: {}\nselector: triton\ntarget: {{module: {}, kernel: {}}}\nhypothesis: h\nstatus: open\n"
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
    with pytest.raises(VariantError, match=r"mine.yaml:1: name: .pinned. is already .* of .*pinned.yaml; .*: mine$"):
        load_variants(folder, strict=True)
    assert load_variants(folder).get("pinned").path.name == "pinned.yaml"


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


def test_a_bad_file_is_refused_only_where_it_is_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    child = PINNED.replace("pinned", "child") + "control: bad\n"
    registry = load_variants(folder_of(tmp_path, pinned=PINNED, child=child, bad="name: 1\n"), tmp_path)
    assert [registry.get("pinned").name, registry.get("child").control] == ["pinned", "bad"]
    assert (
        capsys.readouterr().err == "lab: bad.yaml:1: missing selector, hypothesis, status (left out: not asked for)\n"
    )
    with pytest.raises(VariantError, match=r"bad\.yaml:1: missing"):
        registry.with_controls(["child"])


def test_every_file_must_be_sound_where_all_are_asked_for(tmp_path: Path) -> None:
    with pytest.raises(VariantError, match=r"bad\.yaml"):
        load_variants(folder_of(tmp_path, pinned=PINNED, bad="name: 1\n"), strict=True)


@pytest.mark.parametrize("target", [("sglang.y", "k"), ("sglang.x", "other")])
def test_a_control_of_another_kernel_is_refused_with_its_line(tmp_path: Path, target: tuple[str, str]) -> None:
    mine = MODULES.format("mine", *target) + "control: pinned\n"
    with pytest.raises(VariantError, match=r"mine\.yaml:6: control: 'pinned' targets k of sglang\.x, not .*needed is"):
        load_variants(folder_of(tmp_path, pinned=PINNED, mine=mine), tmp_path, strict=True)


KERNELS = "import triton\n@triton.jit\ndef own(): pass\n"


def test_a_kernel_that_its_file_has_not_is_named_with_those_it_has_and_not_laid_to_the_control(tmp_path: Path) -> None:
    (tmp_path / "k.py").write_text(KERNELS)
    change = "control: pinned\nchange: {file: k.py}\n"
    pinned = PINNED.replace("kernel: k", "kernel: own") + "change: {file: k.py}\n"
    folder = folder_of(tmp_path, pinned=pinned, mine=MODULES.format("mine", "sglang.x", "owm") + change)
    says = r"mine\.yaml:3: kernel: variant 'mine' changes k\.py, which has no function 'owm'; .*kernels: own$"
    with pytest.raises(VariantError, match=says):
        load_variants(folder, tmp_path, strict=True)


@pytest.mark.parametrize(("held", "says"), [(KERNELS, "which has no function 'other'"), ("", "control: 'pinned'")])
def test_sglangs_own_file_is_looked_into_where_it_is_held(
    tmp_path: Path, held: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.kernel.upstream.held_text", lambda _: held)
    mine = MODULES.format("mine", "sglang.x", "other") + "control: pinned\n"
    with pytest.raises(VariantError, match=says):
        load_variants(folder_of(tmp_path, pinned=PINNED, mine=mine), tmp_path, strict=True)


@pytest.mark.parametrize("asked", ["mine", "child"])
def test_a_file_that_is_named_otherwise_than_its_variant_is_told_with_both_names(tmp_path: Path, asked: str) -> None:
    child = PINNED.replace("pinned", "child") + "control: mine\n"
    registry = load_variants(folder_of(tmp_path, mine=PINNED, child=child), tmp_path)
    says = r"no variant is named 'mine': mine\.yaml says name: pinned; write name: mine there, or ask for pinned"
    with pytest.raises(UsageError, match=says):
        registry.get(asked)


def test_a_file_whose_name_no_variant_can_have_is_to_be_renamed(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"rename the file, as a name must be 1 to 40 of a-z.*, or ask for pinned$"):
        load_variants(folder_of(tmp_path, größe=PINNED), tmp_path).get("größe")
    with pytest.raises(VariantError, match=r"choose another, and rename the file after it: its own 'größe' must be"):
        load_variants(folder_of(tmp_path, größe=PINNED, pinned=PINNED), tmp_path, strict=True)


def test_a_control_may_run_another_file_or_none(tmp_path: Path) -> None:
    (tmp_path / "k.py").touch()
    ours = MODULES.format("ours", "sglang.x", "own") + "control: pinned\nchange: {file: k.py}\n"
    pinned = PINNED + "control: outer\n"
    outer = "name: outer\nselector: flashinfer\nhypothesis: h\nstatus: control\n"
    assert load_variants(folder_of(tmp_path, ours=ours, pinned=pinned, outer=outer), tmp_path, strict=True).names


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


def test_a_variant_without_control_says_which_is_needed(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="give it one: control: NAME of a variant with the same target"):
        load_variants(folder_of(tmp_path, pinned=PINNED)).with_controls(["pinned"])


def test_a_named_control_that_nothing_uses_is_refused() -> None:
    with pytest.raises(UsageError, match=r"'flashinfer' would be compared with nothing; .*: upstream"):
        load_variants().with_controls(["flashinfer", "v1"])


def test_an_unknown_variant_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match=r"unknown variant 'v9'; known: aa, baseline, "):
        load_variants().with_controls(["v9"])


def test_a_slip_in_a_name_is_answered_with_the_nearest_one() -> None:
    with pytest.raises(UsageError, match=r"v3\. Did you mean baseline\?"):
        load_variants().get("basline")


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
