"""What images there are, which of them run, and which is stable."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from app.image.build import SUFFIXES, repository
from app.image.daemon import connect, told
from app.image.identity import LABEL
from app.settings import Deployment

COLUMNS = ("image", "variant", "selector", "kernel", "sglang", "triton", "size", "created", "running as", "stable")
_SERVICE = "com.docker.compose.service"


@dataclass(frozen=True, slots=True)
class ImageRow:
    """One stamped image. running: compose services that run it now; kernel: its digest's first 12 digits."""

    tag: str
    variant: str
    selector: str
    kernel: str
    sglang: str
    triton: str
    size_bytes: int
    created: str
    running: tuple[str, ...]
    stable: bool
    forced: bool = False

    def cells(self) -> tuple[str, ...]:
        """Texts in the order of COLUMNS."""
        size, stable = f"{self.size_bytes / 1e6:.0f} MB", self._standing()
        texts = (self.tag, self.variant, self.selector, self.kernel, self.sglang, self.triton, size, self.created)
        return (*texts, ", ".join(self.running), stable)

    def _standing(self) -> str:
        return ("stable, by force" if self.forced else "stable") if self.stable else ""


def list_images(settings: Deployment) -> list[ImageRow]:
    """Every image of the lab's repositories that holds a kernel, by tag."""
    with told("listing images"):
        api: Any = connect().api
        running = list(_running(api))
        places = [repository(settings, engine) for engine in SUFFIXES]
        found = [image for place in places for image in api.images(name=place)]
    return sorted((_row(image, running) for image in found if _labels(image)), key=lambda row: row.tag)


def _running(api: Any) -> Iterator[tuple[str, str]]:
    for container in api.containers():
        yield container["ImageID"], (container["Labels"] or {}).get(_SERVICE, container["Names"][0].lstrip("/"))


def _labels(image: dict[str, Any]) -> dict[str, str]:
    labels = image.get("Labels") or {}
    return {k.removeprefix(f"{LABEL}."): v for k, v in labels.items() if k.startswith(f"{LABEL}.")}


def _row(image: dict[str, Any], running: list[tuple[str, str]]) -> ImageRow:
    labels, tags = _labels(image), sorted(image.get("RepoTags") or [])
    # The shortest is the variant's own; the others name the same content.
    named = sorted((t for t in tags if not t.endswith(":stable")), key=len)
    return ImageRow(
        tag=named[0] if named else image["Id"][7:19],
        variant=labels.get("variant", ""),
        selector=labels.get("selector", ""),
        kernel=labels.get("kernel.sha256", "")[:12],
        sglang=labels.get("sglang.version", ""),
        triton=labels.get("triton.version", ""),
        size_bytes=int(image["Size"]),
        created=_date(int(image["Created"])),
        running=tuple(sorted(service for held, service in running if held == image["Id"])),
        stable=any(tag.endswith(":stable") for tag in tags),
        forced="forced" in labels,
    )


def _date(seconds: int) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M")
