"""Images of the simulated stack on a real daemon: what they share, what differs, what they say of themselves."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from app.environment import ROOT
from app.errors import BuildError, GateError, UsageError
from app.image.build import BuiltImage, build_target, build_variant, identity_of
from app.image.daemon import connect
from app.image.identity import label_differences
from app.image.listing import list_images
from app.records import read_json
from app.settings import Deployment
from app.stack.compose import Compose, compose_files
from tests.docker.conftest import PROJECT, REPOSITORY

pytestmark = [pytest.mark.docker, pytest.mark.timeout(600)]


def test_variants_share_every_layer_but_the_last(built: dict[str, BuiltImage]) -> None:
    assert len({image.layers[:-1] for image in built.values()}) == 1
    assert len({image.layers[-1] for image in built.values()}) == len(built)


def test_layer_that_differs_is_small(built: dict[str, BuiltImage]) -> None:
    assert max(image.kernel_layer_bytes for image in built.values()) < 200_000


def test_later_variants_build_within_ten_seconds(built: dict[str, BuiltImage]) -> None:
    times = {name: image.seconds for name, image in built.items()}
    print(f"build seconds: {times}")
    assert min(times[name] for name in list(times)[1:]) < 10


def test_kernel_layer_has_the_same_digest_in_a_clean_build(
    built: dict[str, BuiltImage], settings: Deployment, tmp_path: Path
) -> None:
    """Clean but for the packages of the lock file, whose hashes say what they are."""
    client = connect()
    arguments = {"PYTHON_IMAGE": settings.python_image, "VARIANT": "v2"}
    packages = build_target(client, "lab", arguments, print)
    above = (ROOT / "Dockerfile").read_text().partition("FROM lab AS sim-base")[2]
    (tmp_path / "Dockerfile").write_text(f"FROM {packages} AS sim-base{above}")
    again = build_target(client, "sim", arguments, print, dockerfile=str(tmp_path / "Dockerfile"), nocache=True)
    api: Any = client.api
    layers = api.inspect_image(again)["RootFS"]["Layers"]
    api.remove_image(again, force=True)
    assert layers[-1] == built["v2"].layers[-1]
    # Proof that nothing came from the cache: file times of the layers before differ.
    assert layers[-2] != built["v2"].layers[-2]


def test_compose_build_gives_the_same_layers(api: Any, settings: Deployment, built: dict[str, BuiltImage]) -> None:
    """And so does plain `docker build`, which compose's classic builder amounts to."""
    wanted = settings.environment() | {"IMAGE_REPOSITORY": f"{REPOSITORY}-compose", "VARIANT": "v1"}
    Compose(PROJECT, compose_files("sim")).run(wanted | {"DOCKER_BUILDKIT": "0"}, "build", "decode")
    layers = api.inspect_image(f"{REPOSITORY}-compose-sim:v1")["RootFS"]["Layers"]
    assert layers[-1] == built["v1"].layers[-1]


def test_labels_repeat_the_identity(api: Any, built: dict[str, BuiltImage]) -> None:
    labels = api.inspect_image(built["v2"].tags[0])["Config"]["Labels"]
    identity = identity_of(connect(), built["v2"].tags[1])
    assert identity == built["v2"].identity
    assert identity.labels().items() <= labels.items()
    assert label_differences(labels | {"io.decode-ab.kernel.sha256": "0" * 64}, identity) != []


def test_bill_of_materials_lies_beside_the_lock_record_and_the_label_names_it(
    api: Any, settings: Deployment, built: dict[str, BuiltImage], tmp_path: Path
) -> None:
    again = build_variant("v2", "sim", settings, print, tmp_path)
    bill = (tmp_path / "sim-v2.cdx.json").read_bytes()
    labels = api.inspect_image(again.image_id)["Config"]["Labels"]
    assert labels["io.decode-ab.sbom.sha256"] == hashlib.sha256(bill).hexdigest()
    assert labels["org.opencontainers.image.revision"]
    # The kernel layer alone is the same in every build: a clean one makes the layers below it anew.
    assert again.layers[-1] == built["v2"].layers[-1]


def test_image_says_what_it_holds(built: dict[str, BuiltImage]) -> None:
    identity = built["v2"].identity
    assert (identity.configs, identity.selector, identity.engine) == (("(16,4,3)",), "triton", "sim")
    assert built["flashinfer"].identity.kernel_sha256 == identity.base_sha256
    assert identity.labels()["org.opencontainers.image.title"] == "SIMULATED decode-ab v2"


def test_image_runs_as_a_user_without_rights(api: Any, built: dict[str, BuiltImage]) -> None:
    assert api.inspect_image(built["v2"].tags[0])["Config"]["User"] == "10001:10001"


def test_building_leaves_a_lock_record(settings: Deployment, built: dict[str, BuiltImage], tmp_path: Path) -> None:
    again = build_variant("v2", "sim", settings, print, tmp_path)
    record = read_json(tmp_path / "sim-v2.json")
    assert (record["image_id"], tuple(record["layers"])) == (again.image_id, again.layers)
    assert record["identity"]["kernel_sha256"] == built["v2"].identity.kernel_sha256
    assert record["arguments"]["PYTHON_IMAGE"] == settings.python_image


def test_images_are_listed_with_variant_and_kernel(settings: Deployment, built: dict[str, BuiltImage]) -> None:
    rows = {row.variant: row for row in list_images(settings)}
    assert rows.keys() == built.keys()
    assert rows["v2"].kernel == built["v2"].identity.digest
    assert not rows["v2"].running


def test_build_refuses_an_unknown_variant(settings: Deployment) -> None:
    with pytest.raises(UsageError, match=r"unknown variant 'v9'; known: .*v1, v2"):
        build_variant("v9", "sim", settings, print)


def test_build_refuses_a_changed_base_file(built: dict[str, BuiltImage], tmp_path: Path) -> None:
    image = built["v2"]
    bake = "python3 -m app.container bake --engine sim --release 0.5.17 --arch 120 --variant v2 --out /out"
    (tmp_path / "Dockerfile").write_text(
        f"FROM {image.tags[0]}\nUSER root\nRUN printf '#' >> {image.identity.kernel_file}\n"
        f"COPY kernels /opt/lab/kernels\nRUN {bake}\n"
    )
    with pytest.raises(GateError, match=r"has SHA-256 .*, SGLang 0\.5\.17's own file has 37e6dd6d"):
        build_target(connect(), "", {}, print, dockerfile=str(tmp_path / "Dockerfile"))


def test_build_says_when_the_base_cannot_be_had(settings: Deployment, built: dict[str, BuiltImage]) -> None:
    arguments = {"PYTHON_IMAGE": "registry.invalid/nothing:here", "VARIANT": "v2"}
    with pytest.raises(BuildError, match="is this host offline"):
        build_target(connect(), "sim", arguments, print)
