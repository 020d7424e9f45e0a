from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from app.environment import ROOT
from app.errors import UsageError
from app.settings import Deployment, read_deployment
from tests.fuzz.trying import refusal, torn, tries

EXAMPLE = (ROOT / ".env.example").read_bytes()
KEYS = st.sampled_from(sorted(Deployment().environment()))
VALUES = st.text(max_size=12) | st.sampled_from(
    [
        "nan",
        "inf",
        "-1",
        "0",
        "9" * 5000,
        "1_0",
        "٣",
        "1e9",
        "99999999999",
        "\0",
        "\x1b[2J",
        "'",
        '"',
        "a'b",
        "$(id)",
        "`id`",
    ]
)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("settings") / ".env"


def read(file: Path, data: bytes) -> str:
    file.write_bytes(data)
    return refusal(lambda: _used(read_deployment(file, {}).check_placement()))


def _used(settings: Deployment) -> None:
    assert all(text.isprintable() for text in settings.environment().values())


@tries(150)
@given(data=torn(EXAMPLE))
def test_torn_settings_are_read_or_refused(file: Path, data: bytes) -> None:
    read(file, data)


@tries(300)
@given(pairs=st.dictionaries(KEYS, VALUES, max_size=4))
@example(pairs={"DECODE_TP": "999999999"})
@example(pairs={"DECODE_NODES": "0"})
@example(pairs={"SIM_TIME_SCALE": "nan"})
def test_any_values_are_read_or_refused(file: Path, pairs: dict[str, str]) -> None:
    read(file, "\n".join(f"{k}={v}" for k, v in pairs.items()).encode("utf-8", "surrogatepass"))


@tries(80)
@given(data=st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(file: Path, data: bytes) -> None:
    read(file, data)


@tries(100)
@given(pairs=st.dictionaries(KEYS, VALUES, max_size=4))
def test_any_environment_is_read_or_refused(pairs: dict[str, str]) -> None:
    refusal(lambda: _used(read_deployment(None, pairs).check_placement()))


def test_a_file_beyond_the_limit_is_refused_unread(file: Path) -> None:
    assert "larger than 64 KiB" in read(file, b"#" * 2**17)


def test_a_setting_given_twice_is_refused_with_both_lines(file: Path) -> None:
    assert ":3: VARIANT was given on line 1 already" in read(file, b"VARIANT=v1\n\nVARIANT=v2\n")


def test_a_folder_in_place_of_the_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / ".env").mkdir()
    with pytest.raises(UsageError, match="is no regular file"):
        read_deployment(tmp_path / ".env", {})
