from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from app.environment import ROOT
from app.errors import BuildError
from app.image.identity import Identity
from app.image.sbom import bill_of_materials, bill_sha256, read_lock
from app.settings import Deployment

SIM = Identity("v1", "pinned", "sim", "triton", "k", "/opt/k.py", "a" * 64, "b" * 64, "0.5.17", None, 120, ("c",))


def test_every_package_of_the_lock_is_named_with_version_hash_and_purl() -> None:
    parts = {p["name"]: p for p in json.loads(bill_of_materials(SIM, Deployment()))["components"]}
    locked = [
        line.split("==")[0] for line in (ROOT / "requirements/base.lock").read_text().splitlines() if "==" in line
    ]
    assert set(locked) <= parts.keys()
    assert parts["pyyaml"]["purl"] == f"pkg:pypi/pyyaml@{parts['pyyaml']['version']}"
    assert all(p["hashes"] for p in parts.values())


def test_base_image_and_kernel_file_are_named_by_digest() -> None:
    parts = json.loads(bill_of_materials(SIM, Deployment()))["components"]
    assert [p["hashes"][0]["content"] for p in parts[:2]] == [Deployment().python_image[-64:], "a" * 64]


def test_the_document_is_cyclonedx_with_one_reference_a_part() -> None:
    document = json.loads(bill_of_materials(SIM, Deployment()))
    references = [p["bom-ref"] for p in document["components"]]
    assert (document["bomFormat"], document["specVersion"]) == ("CycloneDX", "1.5")
    assert len(references) == len(set(references))


def test_equal_images_have_equal_bills_and_others_have_others() -> None:
    one = bill_of_materials(SIM, Deployment())
    assert one == bill_of_materials(SIM, Deployment())
    assert bill_sha256(one) != bill_sha256(bill_of_materials(replace(SIM, kernel_sha256="c" * 64), Deployment()))


def test_the_served_image_names_sglangs_and_what_only_builds_it() -> None:
    parts = json.loads(bill_of_materials(replace(SIM, engine="sglang"), Deployment()))["components"]
    assert parts[0]["name"].startswith("lmsysorg/sglang:")
    assert {p["scope"] for p in parts if p["type"] == "library"} == {"excluded"}


@pytest.mark.parametrize(
    ("text", "said"),
    [("requests>=2", "x.lock:1: 'requests>=2' is no package"), ("requests==2.0\n", "requests has no hash")],
)
def test_a_lock_that_pins_nothing_is_refused(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "x.lock").write_text(text)
    with pytest.raises(BuildError, match=said):
        list(read_lock(tmp_path / "x.lock"))
