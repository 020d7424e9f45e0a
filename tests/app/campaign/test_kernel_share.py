from __future__ import annotations

from pathlib import Path

import pytest

from app.campaign.kernel_share import check_shares
from app.campaign.runs import RunFolder
from app.errors import RecordsError, UsageError
from app.records import read_json, write_json

LEVEL = {"concurrency": 96, "simultaneous_low_pct": -8.0, "simultaneous_high_pct": -6.0}
ENTRY = "- {variant: v1, concurrency: 96, time_ratio: 1.5, share_low: %s, share_high: %s, source: a profile}\n"


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    write_json(tmp_path / "verdict.json", {"variants": [{"variant": "v1", "levels": [LEVEL]}]})
    return RunFolder(tmp_path)


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "amdahl.yaml"
    path.write_text(text)
    return path


def test_an_effect_that_the_kernels_share_explains_agrees_and_is_kept(folder: RunFolder, tmp_path: Path) -> None:
    lines = check_shares(folder, written(tmp_path, ENTRY % (0.12, 0.18)))
    assert "agrees" in lines[0]
    assert read_json(tmp_path / "amdahl.json")[0]["variant"] == "v1"


def test_an_effect_larger_than_the_kernels_share_is_told(folder: RunFolder, tmp_path: Path) -> None:
    assert (
        "DISAGREES: more than the kernel explains" in check_shares(folder, written(tmp_path, ENTRY % (0.01, 0.02)))[0]
    )


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("- {variant: v1}\n", "entry 1 needs exactly the keys"),
        ("{}\n", "a list of kernel changes"),
        (ENTRY % (0.2, 1.5), "the share between 0 and 1"),
        (ENTRY.replace("v1", "v7") % (0.1, 0.2), "names no variant and concurrency"),
        (ENTRY.replace("1.5", "fast") % (0.1, 0.2), "entry 1"),
    ],
)
def test_a_file_that_makes_no_sense_is_refused(folder: RunFolder, tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        check_shares(folder, written(tmp_path, text))


def test_a_file_that_is_no_yaml_is_named(folder: RunFolder, tmp_path: Path) -> None:
    with pytest.raises(RecordsError, match=r"amdahl\.yaml could not be read"):
        check_shares(folder, written(tmp_path, "- {"))
