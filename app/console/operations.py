"""What the image and life-cycle tasks show: each function does one task's work and prints the outcome."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from rich.table import Table

from app import arguments
from app.campaign.container_runtime import end_left_campaign
from app.deployment.kubernetes import write_manifests
from app.deployment.lifecycle import Lifecycle, Serving
from app.deployment.stable import promote, rollback
from app.errors import UsageError
from app.image.bases import move_pin, pinned_images
from app.image.listing import COLUMNS, list_images
from app.kernel.variants import load_variants
from app.report.wording import counted
from app.settings import Deployment, settings_here
from app.terminal import show

SCHEMA = 1


def show_build(variant: str, engine: str, allow_noop: bool) -> None:
    """Gates a variant, builds its image and prints what it is."""
    from app.gate.named import check_named

    # Only a real engine runs the code that the gate compiles.
    if engine == "sglang":
        check_named(variant, arch=settings().cuda_arch).require(allow_noop)
    built = _lifecycle().build(variant, engine)
    print(f"{', '.join(built.tags)}  {built.image_id}")
    print(f"kernel {built.identity.kernel_sha256} on base {built.identity.base_sha256}")
    print(f"{built.size_bytes / 1e6:.0f} MB, of it {built.kernel_layer_bytes / 1e3:.0f} kB in the layer that differs")
    print(f"built in {built.seconds:.1f} s")


def show_images(as_json: bool) -> None:
    """Prints the lab's images, what runs them and which is stable."""
    rows = list_images(settings())
    if as_json:
        print(json.dumps({"schema": SCHEMA, "images": [asdict(row) for row in rows]}, indent=1))
        return
    table = Table(*COLUMNS, title="images")
    for row in rows:
        table.add_row(*row.cells())
    show(table)


def show_up(variant: str, engine: str, runtime: str, overrides: str) -> None:
    """Brings the whole stack up on a variant; overrides: further compose files, separated by commas."""
    if runtime != "docker":
        raise UsageError(f"runtime {runtime!r}: up keeps a stack running under compose, so --runtime docker only")
    _show_serving(_lifecycle(arguments.names(overrides, "override") if overrides else ()).up(variant, engine))


def show_switch(variant: str) -> None:
    """Replaces decode alone."""
    _show_serving(_lifecycle().switch(variant))


def show_verify(as_json: bool) -> None:
    """Prints the proof read from inside the running services."""
    proven = _lifecycle().verify()
    if as_json:
        print(json.dumps({"schema": SCHEMA, "services": [found.to_json() for found in proven]}, indent=1))
        return
    for found in proven:
        print(f"{found.service}: {found.identity.variant}, kernel {found.kernel_sha256}, selector {found.selector}")
        print(f"  image {found.image_id}; {len(found.cache)} Triton cache entries")


def show_promote(variant: str, engine: str, force: bool, reason: str) -> None:
    """Makes a variant's image the stable one."""
    load_variants().get(variant)
    moved = promote(settings(), variant, engine, force=force, reason=reason)
    print(f"stable is {moved.tag}" + (f", accepted by campaign {moved.campaign}" if moved.campaign else ", by force"))


def show_rollback(engine: str) -> None:
    """Makes the previous stable image stable again."""
    restored = rollback(settings(), engine)
    print(f"stable is {restored.tag} again")
    if serving := _lifecycle().restore(engine, restored.tag):
        _show_serving(serving)


def show_pin(image: str) -> None:
    """Moves a pin and prints old, new and the files; or prints every pin."""
    if not image:
        print(*pinned_images().values(), sep="\n")
        return
    old, moves = move_pin(image)
    print(f"old {old}", f"new {image}", sep="\n")
    print(*(f"{move.file}: {counted(move.places, 'place')}" for move in moves), sep="\n")
    print("images are as they were until they are built again: invoke build --variant NAME")


def show_manifests(out: str) -> None:
    """Renders the Kubernetes manifests and prints where they are."""
    written = write_manifests(settings(), load_variants(strict=True).variants.values(), Path(out))
    print(f"{len(written)} files under {out}; kubectl apply -k {out}/overlays/VARIANT")


def take_down() -> None:
    """Ends the stack and removes what it left, and what a campaign left whose lab was killed."""
    _lifecycle().down()
    print("nothing of the stack is left")
    if busy := end_left_campaign(settings()):
        print(f"the campaign in {busy} still runs; its containers are left alone")


def settings() -> Deployment:
    """The settings of this folder: environment over .env over defaults."""
    return settings_here(os.environ)


def _lifecycle(overrides: Sequence[str] = ()) -> Lifecycle:
    return Lifecycle(settings(), print, overrides=overrides)


def _show_serving(serving: Serving) -> None:
    print(f"router at {serving.router_url}, model {serving.endpoints.model}; load page at {serving.page_url}")
    canary = serving.canary
    print(f"canary: {canary.completion_tokens} tokens in {canary.seconds:.2f} s, and decode's counter moved")
