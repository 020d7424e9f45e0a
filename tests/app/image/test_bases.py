from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from app.environment import ROOT
from app.errors import UsageError
from app.image.bases import FILES, REFERENCE, move_pin, pinned_images
from app.settings import Deployment

NEW = "python:3.11-slim-bookworm@sha256:" + "a" * 64


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for file in FILES:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / file, tmp_path / file)
    return tmp_path


def test_every_base_image_is_pinned_by_digest_and_the_same_everywhere() -> None:
    pins = pinned_images()
    assert {"python", "lmsysorg/sglang"} <= pins.keys()
    assert pins["python"] == Deployment().python_image
    assert pins["lmsysorg/sglang"] == Deployment().sglang_image


def test_no_other_file_pins_an_image() -> None:
    kinds = ("*.yml", "*.yaml", "*Dockerfile", "*.py", "*.example")
    folders = [ROOT, ROOT / "deploy", ROOT / "app"]
    found = {p for f in folders for k in kinds for p in (f.glob(k) if f == ROOT else f.rglob(k))}
    naming = {p.relative_to(ROOT).as_posix() for p in found if REFERENCE.search(p.read_text(encoding="utf-8"))}
    assert naming == set(FILES)


def test_a_pin_moves_in_every_file_and_nothing_else_does(root: Path) -> None:
    old, moves = move_pin(NEW, root)
    assert (old, pinned_images(root)["python"]) == (Deployment().python_image, NEW)
    assert {m.file for m in moves} == {"Dockerfile", "docker-compose.yml", ".env.example", "app/settings.py"}
    for file in FILES:
        assert (root / file).read_text().replace(NEW, old) == (ROOT / file).read_text()


@pytest.mark.parametrize(
    ("image", "said"),
    [
        ("python:3.12", "a tag moves, so the digest is needed"),
        ("python@sha256:" + "a" * 64, "is no NAME:TAG@sha256:DIGEST"),
        ("python:3.11@sha256:abc", "is no NAME:TAG@sha256:DIGEST"),
        ("evil/python:3.11@sha256:" + "a" * 64, "unknown base image 'evil/python'; known: grafana/grafana"),
        (Deployment().python_image, "is the pin already"),
    ],
)
def test_what_is_no_new_pin_is_refused(root: Path, image: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        move_pin(image, root)
    assert pinned_images(root) == pinned_images()


def test_files_that_disagree_are_refused(root: Path) -> None:
    text = (root / "Dockerfile").read_text()
    (root / "Dockerfile").write_text(text.replace(Deployment().python_image, NEW))
    with pytest.raises(UsageError, match="python is pinned in two ways"):
        move_pin(NEW, root)
