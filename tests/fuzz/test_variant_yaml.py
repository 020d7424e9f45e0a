from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from app.environment import ROOT
from app.errors import VariantError
from app.kernel.variant_files import read_variant
from app.kernel.variants import VARIANTS, load_variants
from tests.fuzz.trying import JSON, damaged, refusal, torn, tries

GOOD = (VARIANTS / "v2.yaml").read_bytes()
PARTS = st.sampled_from(
    ["a: ", "- ", "&x ", "*x", "!!python/object:os.system ", "? ", ": ", "{", "[", "\n", "  ", "|\n"]
)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("variants") / "any.yaml"


def read(file: Path, data: bytes) -> str:
    file.write_bytes(data)
    return refusal(lambda: read_variant(file, ROOT))


@tries(120)
@given(data=torn(GOOD))
def test_torn_file_is_read_or_refused(file: Path, data: bytes) -> None:
    read(file, data)


@tries(120)
@given(value=damaged(yaml.safe_load(GOOD)))
def test_file_with_any_value_at_any_place_is_read_or_refused(file: Path, value: object) -> None:
    read(file, yaml.safe_dump(value, allow_unicode=True).encode("utf-8", "surrogatepass"))


@tries(80)
@given(data=st.binary(max_size=200) | st.lists(PARTS, max_size=30).map("".join).map(str.encode))
def test_any_bytes_are_refused(file: Path, data: bytes) -> None:
    assert read(file, data)


@tries(5)
@given(deep=st.integers(17, 5_000), opening=st.sampled_from(["[", "{a: ", "- ", "? "]))
def test_deep_nesting_is_refused(file: Path, deep: int, opening: str) -> None:
    assert read(file, b"a: " + opening.encode() * deep)


@tries(60)
@given(
    name=st.sampled_from(
        ["..", "/", "/etc", "kernels", "\0", "~", "a.py", "passwd", "$HOME", "proc", "self", "\u202e"]
    ),
    rest=st.lists(st.sampled_from(["..", ".", "kernels", "etc", "passwd", "x.py", "\x1b[2J"]), max_size=5),
)
def test_no_replacement_path_leads_out_of_the_repository(file: Path, name: str, rest: list[str]) -> None:
    value = yaml.safe_load(GOOD) | {"change": {"file": "/".join([name, *rest])}}
    assert read(file, yaml.safe_dump(value).encode())


@tries(40)
@given(constants=st.dictionaries(st.text(max_size=5), JSON, min_size=1, max_size=3))
def test_constants_are_plain_data_or_refused(file: Path, constants: dict[str, object]) -> None:
    value = yaml.safe_load(GOOD) | {"change": {"constants": constants}}
    read(file, yaml.safe_dump(value, allow_unicode=True).encode("utf-8", "surrogatepass"))


def test_variant_file_that_is_a_link_out_of_its_folder_is_refused_unread(tmp_path: Path) -> None:
    folder, outside = tmp_path / "variants", tmp_path / "secret"
    folder.mkdir()
    outside.write_text("name: the-secret-word: 1")
    (folder / "x.yaml").symlink_to(outside)
    with pytest.raises(VariantError, match="leads out of") as caught:
        load_variants(folder, tmp_path)
    assert "the-secret-word" not in str(caught.value)


def test_variant_file_that_is_no_regular_file_is_refused_unread(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x.yaml")
    with pytest.raises(VariantError, match="is no regular file"):
        load_variants(tmp_path, tmp_path)
