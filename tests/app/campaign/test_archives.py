"""A sitting's state where it is taken up again: whole, or not at all."""

from __future__ import annotations

import random
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from app.campaign.archives import pack, restore
from app.errors import UsageError

CAMPAIGNS = ("card-fast-pinned", "card-v1-pinned")


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """The state of two campaigns, of bytes that do not compress."""
    files = [tmp_path / "runs" / name / "blocks" / f"{n:03d}" / "block.json" for name in CAMPAIGNS for n in range(4)]
    for seed, file in enumerate(files):
        file.parent.mkdir(parents=True)
        file.write_bytes(random.Random(seed).randbytes(20_000))
    pack(tmp_path / "state.tar.gz", tmp_path / "runs", files)
    return tmp_path / "state.tar.gz"


def zeroed(data: bytes) -> bytes:
    middle = len(data) // 2
    return data[:middle] + bytes(100) + data[middle + 100 :]


def halved(data: bytes) -> bytes:
    return data[: len(data) // 2]


def without_checksum(data: bytes) -> bytes:
    return data[:-8] + bytes(8)


@pytest.mark.parametrize("damage", [zeroed, halved, without_checksum, lambda _: b"no archive", lambda _: b""])
def test_a_damaged_state_is_refused_in_a_line_and_nothing_of_it_is_left(
    tmp_path: Path, archive: Path, damage: Callable[[bytes], bytes]
) -> None:
    archive.write_bytes(damage(archive.read_bytes()))
    with pytest.raises(UsageError, match=r"--state .* could not be unpacked \(.+\); name the state"):
        restore(archive, tmp_path / "elsewhere")
    assert list((tmp_path / "elsewhere").glob("*")) == []


def test_a_state_that_is_not_there_is_refused_in_a_line(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="could not be unpacked"):
        restore(tmp_path / "state.tar.gz", tmp_path / "elsewhere")


def test_a_restore_that_is_interrupted_leaves_no_campaign_and_succeeds_afterwards(
    tmp_path: Path, archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(tar: tarfile.TarFile, path: Path, **_: object) -> None:
        tar.extract(tar.getmembers()[0], path, filter="data")
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(tarfile.TarFile, "extractall", interrupted)
        with pytest.raises(KeyboardInterrupt):
            restore(archive, tmp_path / "elsewhere")
    assert list((tmp_path / "elsewhere").glob("*")) == []
    restore(archive, tmp_path / "elsewhere")
    assert sorted(path.name for path in (tmp_path / "elsewhere").iterdir()) == list(CAMPAIGNS)


def test_a_restore_that_ends_between_two_campaigns_leaves_neither(
    tmp_path: Path, archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename = Path.rename

    def interrupted(path: Path, target: Path) -> Path:
        if path.name == CAMPAIGNS[1]:
            raise KeyboardInterrupt
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", interrupted)
    with pytest.raises(KeyboardInterrupt):
        restore(archive, tmp_path / "elsewhere")
    assert list((tmp_path / "elsewhere").glob("*")) == []
