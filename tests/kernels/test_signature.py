"""Signature files: read strictly, and bound to a kernel as Triton's own launch would specialise it."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernels.geometry import Geometry, default_geometry
from kernels.signature import FOLDER, Signature, SignatureError, load_signature
from tests.kernels.samples import DOT, SIGNATURE, Config, write_signature

ONE_HEAD = Geometry(heads=64, tp=64)


def _load(folder: Path, text: str = SIGNATURE) -> Signature:
    return load_signature("_demo_kernel", write_signature(folder, text))


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_signature_file_loads(path: Path) -> None:
    assert load_signature(path.stem).arguments


def test_arguments_come_in_the_kernels_order_with_constants_between(tmp_path: Path) -> None:
    arguments, constants = _load(tmp_path).bind(DOT, default_geometry(), Config())
    assert arguments[-2:] == [("n", "i32", True), ("BLOCK", "constexpr", False)]
    assert constants == {"BLOCK": 64}


@pytest.mark.parametrize(
    ("geometry", "kind", "divisible", "constant"),
    [
        (default_geometry(), "i32", True, {}),
        (Geometry(64, 8), "i32", False, {}),
        (ONE_HEAD, "constexpr", False, {"n": 1}),
    ],
    ids=["16 heads", "8 heads", "1 head"],
)
def test_value_fixed_by_geometry_is_specialised(
    tmp_path: Path, geometry: Geometry, kind: str, divisible: bool, constant: dict[str, int]
) -> None:
    signature = _load(tmp_path, SIGNATURE.replace("i32:16", "i32=heads"))
    arguments, constants = signature.bind(DOT, geometry, Config())
    assert arguments[3] == ("n", kind, divisible)
    assert constants == {"BLOCK": 64, **constant}


def test_uses_override_the_common_part(tmp_path: Path) -> None:
    text = (
        SIGNATURE + "variants_of_use:\n- {name: short, arguments: {n: i32}}\n- {name: long, constants: {BLOCK: 128}}\n"
    )
    short, long = _load(tmp_path, text).uses
    assert (short.use, short.arguments[3].divisible, dict(long.constants)) == ("short", False, {"BLOCK": 128})


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("i32:16", "i32=haeds", "haeds"),
        ("i32:16", "int 32", "no type"),
        ("  n:", "  m:", "m, n"),
        ("kernel: _demo_kernel", "kernel: other", "kernel must be"),
        ("arguments:", "argumenst:", "argumenst"),
        ("  a_ptr", "\ta_ptr", "not YAML"),
    ],
)
def test_faulty_file_is_refused_by_name(tmp_path: Path, old: str, new: str, named: str) -> None:
    with pytest.raises(SignatureError, match=named):
        _load(tmp_path, SIGNATURE.replace(old, new)).bind(DOT, default_geometry(), Config())


def test_config_that_sets_no_argument_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SignatureError, match="BLOCK_Z"):
        _load(tmp_path).bind(DOT, default_geometry(), Config({"BLOCK": 64, "BLOCK_Z": 1}))


def test_constant_without_a_value_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SignatureError, match="no value for constexpr BLOCK"):
        _load(tmp_path).bind(DOT, default_geometry(), Config({}))


def test_missing_file_says_where_to_write_it(tmp_path: Path) -> None:
    with pytest.raises(SignatureError, match=r"no signature for kernel k; write .*k\.yaml"):
        load_signature("k", tmp_path)


@pytest.mark.parametrize(
    ("told", "source", "rank", "launched"),
    [
        ("own_heads: own", "import x\ndef own(n): ...", Geometry(64, 4), [16]),
        ("own_heads: own", "import x\ndef other(n): ...", Geometry(64, 4), [64, 16]),
        ("", "", Geometry(64, 4), [64, 16]),
        ("", "", Geometry(16, 1), [16]),
        ("", "", Geometry(128, 1), [128]),
    ],
)
def test_a_file_that_tells_a_ranks_own_heads_is_launched_for_them_and_another_for_those_that_sglang_gives_it(
    tmp_path: Path, told: str, source: str, rank: Geometry, launched: list[int]
) -> None:
    signature = _load(tmp_path, f"{SIGNATURE}{told}\n")
    assert [geometry.local_heads for geometry in signature.launched_on(rank, source)] == launched
