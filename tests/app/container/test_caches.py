"""Cache volumes seeded from the image: empty, used, damaged, unwritable."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pytest

from app.container.caches import cache_environment, prepare_caches
from app.engine.sglang.caches import VARIABLES
from app.errors import NotReadyError, ProofError
from app.gate.seeding import Seeded
from app.image.identity import Identity

ENTRY = {"KEY/k.cubin": b"code", "KEY/__grp__k.json": b'{"child_paths": {"k.cubin": "k.cubin"}}'}


@pytest.fixture
def baked(tmp_path: Path) -> Path:
    folder = tmp_path / "baked"
    for name, data in ENTRY.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


@pytest.fixture
def holder(identity: Identity) -> Identity:
    return replace(identity, baked={name: hashlib.sha256(data).hexdigest() for name, data in ENTRY.items()})


def test_every_cache_lies_in_the_folder_of_the_kernel(identity: Identity, tmp_path: Path) -> None:
    places = cache_environment(identity, tmp_path)
    assert places.keys() == VARIABLES.keys()
    assert {Path(place).parent for place in places.values()} == {tmp_path / identity.kernel_sha256[:12]}


def test_empty_volume_is_seeded(holder: Identity, baked: Path, tmp_path: Path) -> None:
    volume = tmp_path / "volume"
    assert prepare_caches(holder, volume, baked) == Seeded(copied=2, kept=0, replaced=0)
    assert (volume / holder.digest / "triton/KEY/k.cubin").read_bytes() == b"code"


def test_group_file_names_its_members_where_they_lie(holder: Identity, baked: Path, tmp_path: Path) -> None:
    prepare_caches(holder, tmp_path / "volume", baked)
    group = tmp_path / "volume" / holder.digest / "triton/KEY/__grp__k.json"
    assert [Path(p).read_bytes() for p in json.loads(group.read_text())["child_paths"].values()] == [b"code"]


def test_used_volume_is_left_as_it_is(holder: Identity, baked: Path, tmp_path: Path) -> None:
    volume = tmp_path / "volume"
    prepare_caches(holder, volume, baked)
    own = volume / holder.digest / "triton/OTHER/x"
    own.parent.mkdir()
    own.write_text("compiled at run time")
    assert prepare_caches(holder, volume, baked) == Seeded(copied=0, kept=2, replaced=0)
    assert own.read_text() == "compiled at run time"


def test_damaged_entry_is_replaced(holder: Identity, baked: Path, tmp_path: Path) -> None:
    volume = tmp_path / "volume"
    prepare_caches(holder, volume, baked)
    (volume / holder.digest / "triton/KEY/k.cubin").write_bytes(b"co")
    assert prepare_caches(holder, volume, baked) == Seeded(copied=0, kept=1, replaced=1)


def test_image_with_a_changed_entry_is_refused(holder: Identity, baked: Path, tmp_path: Path) -> None:
    (baked / "KEY/k.cubin").write_bytes(b"other")
    with pytest.raises(ProofError, match=r"prebuilt cache file .*k\.cubin is changed"):
        prepare_caches(holder, tmp_path / "volume", baked)


def test_unwritable_volume_names_the_owner_it_needs(holder: Identity, baked: Path, tmp_path: Path) -> None:
    (tmp_path / "volume").write_text("a file")
    with pytest.raises(NotReadyError, match=r"cannot be written .* chown it to \d+:\d+"):
        prepare_caches(holder, tmp_path / "volume", baked)
