"""Builds images through the Docker SDK, stamps them with what they say of themselves, and records what was built."""

from __future__ import annotations

import io
import os
import re
import subprocess
import tarfile
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.environment import ROOT
from app.errors import BuildError, NotReadyError, UsageError
from app.image.daemon import connect, step_fault, told
from app.image.identity import IDENTITY, LABEL, Identity, parse_identity
from app.image.sbom import bill_of_materials, bill_sha256
from app.kernel.placed import PlacedKernel
from app.kernel.variants import load_variants
from app.records import write_json, write_text
from app.settings import Deployment

if TYPE_CHECKING:
    from docker import DockerClient

SUFFIXES = {"sglang": "", "sim": "-sim"}
SERVICES = ("router", "loadtest")
LOCKS = Path(".decode-ab") / "locks"
LOCK_SCHEMA = 1
READER = f"{LABEL}.reader-pid"
# The classic builder paints what a step writes to its error stream.
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class BuiltImage:
    """An image that was built, stamped and tagged. layers: digests, base first; sizes in bytes."""

    identity: Identity
    image_id: str
    tags: tuple[str, ...]
    layers: tuple[str, ...]
    size_bytes: int
    kernel_layer_bytes: int
    seconds: float

    @property
    def placed(self) -> PlacedKernel:
        """The kernel as stacks take it."""
        return _placed(self.identity, self.tags[-1])


def repository(settings: Deployment, engine: str) -> str:
    """Where an engine's images are kept; simulated ones never beside real ones."""
    if engine not in SUFFIXES:
        raise UsageError.unknown("engine", engine, list(SUFFIXES))
    return f"{settings.image_repository}{SUFFIXES[engine]}"


def tags_of(settings: Deployment, identity: Identity) -> tuple[str, ...]:
    """The variant's tag, which moves with every build, and the one by content, which does not."""
    place = repository(settings, identity.engine)
    return f"{place}:{identity.variant}", f"{place}:{identity.variant}-{identity.digest}"


def build_variant(name: str, engine: str, settings: Deployment, say: Say, locks: Path = LOCKS) -> BuiltImage:
    """Builds a variant's image for an engine ("sglang" or "sim") and writes its lock record and bill of materials.

    Raises UsageError for an unknown variant, GateError when it cannot be built, BuildError and NotReadyError for the
    daemon's faults. Safe to repeat and to interrupt: tags move only once the image is whole.
    """
    load_variants().get(name)
    client, began = connect(), time.monotonic()
    arguments = _arguments(settings) | {"VARIANT": name}
    image = build_target(client, engine, arguments, say)
    identity = identity_of(client, image)
    bill = bill_of_materials(identity, settings)
    labels = identity.labels() | _origin_labels(settings, engine) | {f"{LABEL}.sbom.sha256": bill_sha256(bill)}
    image = _stamp(client, image, labels)
    for tag in tags_of(settings, identity):
        with told(f"tagging {tag}"):
            client.api.tag(image, *_split(tag))
    built = _described(client, image, identity, tags_of(settings, identity), time.monotonic() - began)
    write_json(locks / f"{engine}-{name}.json", _lock(built, settings, engine))
    write_text(locks / f"{engine}-{name}.cdx.json", bill)
    return built


def build_services(settings: Deployment, say: Say) -> None:
    """Builds and tags the images of router and load driver, which hold no kernel."""
    client = connect()
    for service in SERVICES:
        image = build_target(client, service, _arguments(settings), say)
        with told(f"tagging {service}"):
            client.api.tag(image, f"{settings.image_repository}-{service}", "latest")


def build_target(client: DockerClient, target: str, arguments: Mapping[str, str], say: Say, **options: Any) -> str:
    """Builds one target of the Dockerfile with live output; the image's id."""
    with told(f"building {target}"):
        given = {"path": str(ROOT), "rm": True, "forcerm": True, **options}
        stream = client.api.build(target=target, buildargs=dict(arguments), decode=True, **given)
        try:
            return _follow(stream, say, f"linux/{client.info().get('Architecture', '')}")
        except BuildError:
            # A daemon that goes down says all kinds of things of the steps that it drops.
            client.ping()
            raise


def identity_of(client: DockerClient, image: str) -> Identity:
    """The identity.json inside an image, read without running it."""
    sweep_readers(client)
    with told(f"reading {IDENTITY} of {image}"):
        labels = {READER: str(os.getpid())}
        container = client.api.create_container(image, command=["none"], labels=labels)["Id"]
        try:
            chunks, _ = client.api.get_archive(container, str(IDENTITY))
            packed = io.BytesIO(b"".join(chunks))
        finally:
            client.api.remove_container(container, force=True)
    with tarfile.open(fileobj=packed) as archive:
        member = archive.extractfile(IDENTITY.name)
        return parse_identity(member.read() if member else b"", f"{IDENTITY} of {image}")


def stamp_as(image: str, tag: str, labels: Mapping[str, str]) -> str:
    """Tags an image with more labels on the same layers; the new tag."""
    client = connect()
    require_image(client, image)
    stamped = _stamp(client, image, labels)
    with told(f"tagging {tag}"):
        client.api.tag(stamped, *_split(tag))
    return tag


def sweep_readers(client: DockerClient) -> None:
    """Removes containers in which a command that was killed was reading an identity."""
    api: Any = client.api
    with told("removing what a killed command left"):
        for left in api.containers(all=True, filters={"label": READER}):
            if not Path("/proc", left["Labels"][READER]).exists():
                api.remove_container(left["Id"], force=True)


def built_identity(settings: Deployment, variant: str, engine: str) -> Identity:
    """Identity of the image that a variant's tag names; NotReadyError when it was not built."""
    client, tag = connect(), f"{repository(settings, engine)}:{variant}"
    require_image(client, tag)
    return identity_of(client, tag)


def placed_kernel(settings: Deployment, variant: str, engine: str) -> PlacedKernel:
    """The kernel in an image that is already built."""
    identity = built_identity(settings, variant, engine)
    return _placed(identity, tags_of(settings, identity)[1])


def placed_tag(tag: str) -> PlacedKernel:
    """The kernel in the image that a tag by content names."""
    client = connect()
    require_image(client, tag)
    return _placed(identity_of(client, tag), tag)


def require_image(client: DockerClient, tag: str) -> None:
    """NotReadyError when the daemon has no image of that name."""
    from docker.errors import ImageNotFound

    with told(f"looking for {tag}"):
        try:
            client.images.get(tag)
        except ImageNotFound as e:
            raise NotReadyError(
                f"there is no image {tag}; build it with: invoke build --variant NAME, or say --engine sim where "
                "it is an image of the simulated engine"
            ) from e


def _placed(identity: Identity, image: str) -> PlacedKernel:
    return PlacedKernel(
        variant=identity.variant,
        selector=identity.selector,
        path=Path(identity.kernel_file),
        sha256=identity.kernel_sha256,
        base_sha256=identity.base_sha256,
        kernel=identity.kernel or None,
        image=image,
    )


def _follow(stream: Iterable[Mapping[str, Any]], say: Say, platform: str) -> str:
    last: deque[str] = deque(maxlen=20)
    image = ""
    for event in stream:
        if "error" in event:
            raise step_fault(str(event["error"]), list(last), platform)
        image = event.get("aux", {}).get("ID", image)
        for line in _COLOUR.sub("", str(event.get("stream", ""))).splitlines():
            if line.strip():
                last.append(line.strip())
                say(line.rstrip())
    if not image:
        raise BuildError(f"the daemon ended the build without an image: {' | '.join(list(last)[-2:])}")
    return image


def _stamp(client: DockerClient, image: str, labels: Mapping[str, str]) -> str:
    # A build of no steps but labels: the layers stay as they are, and a RUN's findings become labels after all.
    with told("stamping labels"):
        dockerfile = io.BytesIO(f"FROM {image}\n".encode())
        stream = client.api.build(fileobj=dockerfile, labels=dict(labels), decode=True, rm=True, forcerm=True)
        return _follow(stream, lambda _: None, "")


def _split(tag: str) -> tuple[str, str]:
    repository, _, name = tag.rpartition(":")
    return repository, name


def _arguments(settings: Deployment) -> dict[str, str]:
    return {
        "PYTHON_IMAGE": settings.python_image,
        "SGLANG_IMAGE": settings.sglang_image,
        "SGLANG_RELEASE": settings.sglang_release,
        "CUDA_ARCH": str(settings.cuda_arch),
    }


def _origin_labels(settings: Deployment, engine: str) -> dict[str, str]:
    name, _, digest = (settings.sglang_image if engine == "sglang" else settings.python_image).partition("@")
    found = {"base.name": name, "base.digest": digest, "revision": _git("rev-parse", "HEAD")}
    # The last commit's time and not today's: equal inputs shall give equal labels.
    found["created"] = _git("log", "-1", "--format=%cI")
    return {f"org.opencontainers.image.{key}": value for key, value in found.items() if value}


def _git(*arguments: str) -> str:
    try:
        answer = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=30)
    except OSError:
        return ""
    return answer.stdout.strip() if answer.returncode == 0 else ""


def _described(
    client: DockerClient, image: str, identity: Identity, tags: tuple[str, ...], seconds: float
) -> BuiltImage:
    api: Any = client.api
    with told(f"inspecting {image}"):
        facts, steps = api.inspect_image(image), api.history(image)
    kernel_layer = next((step["Size"] for step in steps if step["Size"]), 0)
    layers = tuple(facts["RootFS"]["Layers"])
    return BuiltImage(identity, image, tags, layers, facts["Size"], kernel_layer, round(seconds, 2))


def _lock(built: BuiltImage, settings: Deployment, engine: str) -> dict[str, Any]:
    record = asdict(built) | {"identity": built.identity.to_json(), "schema": LOCK_SCHEMA}
    return record | {"arguments": _arguments(settings), "target": engine}
