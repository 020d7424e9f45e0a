"""What a real daemon says when its disk is full, or when the base is for another machine, told in one line."""

from __future__ import annotations

import contextlib
import io
import os
import shlex
import shutil
import socket
import subprocess
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from docker import DockerClient

from app.errors import BuildError
from app.image.build import build_target

pytestmark = pytest.mark.docker
BASE = "foreign:latest"
# The head of a 64-bit little-endian program for AArch64; the kernel looks no further.
FOREIGN = b"\x7fELF\x02\x01\x01" + bytes(9) + (2).to_bytes(2, "little") + (183).to_bytes(2, "little") + bytes(44)
SMALL = {"PYTHON_IMAGE": BASE, "SGLANG_IMAGE": BASE}


@pytest.fixture(scope="module")
def small_disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A file system of 32 MiB."""
    if os.geteuid() or not shutil.which("dockerd"):
        pytest.skip("needs root and dockerd: a daemon of its own with a disk of its own")
    folder = tmp_path_factory.mktemp("disk")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=32m", "tmpfs", folder], check=True)
    yield folder
    subprocess.run(["umount", "-R", folder], check=True)


@pytest.fixture(scope="module")
def small_daemon(small_disk: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A daemon that keeps everything on the small disk, with an image for another machine in it."""
    folder = tmp_path_factory.mktemp("daemon")
    # In a network of its own: a daemon without a bridge removes the one that another daemon uses.
    places = f"--data-root {small_disk}/data --exec-root {folder}/exec --pidfile {folder}/pid"
    command = f"unshare --net dockerd {places} --host unix://{folder}/socket --bridge=none --iptables=false"
    with (folder / "log").open("wb") as log, subprocess.Popen(shlex.split(command), stdout=log, stderr=log) as daemon:
        try:
            wait_for(folder / "socket")
            # Not the lab's own client, of which there is one in a process.
            with contextlib.closing(DockerClient(base_url=f"unix://{folder}/socket")) as client:
                client.api.import_image_from_data(foreign_root(), repository=BASE.partition(":")[0], tag="latest")
                yield client
        finally:
            daemon.terminate()
            daemon.wait(timeout=30)


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + 60
    with socket.socket(socket.AF_UNIX) as probe:
        while probe.connect_ex(str(path)):
            assert time.monotonic() < deadline
            time.sleep(0.2)


def foreign_root() -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        shell = tarfile.TarInfo("bin/sh")
        shell.size, shell.mode = len(FOREIGN), 0o755
        archive.addfile(shell, io.BytesIO(FOREIGN))
    return out.getvalue()


def test_a_base_for_another_machine_is_named_as_such(small_daemon: Any) -> None:
    with pytest.raises(BuildError, match="the base image is for another platform than the daemon's linux/"):
        build_target(small_daemon, "router", SMALL, print, network_mode="none")


def test_a_full_disk_is_named_with_what_frees_it(small_daemon: Any, small_disk: Path) -> None:
    ballast = small_disk / "ballast"
    with ballast.open("wb") as out:
        while (free := shutil.disk_usage(small_disk).free) > 1 << 20:
            out.write(bytes(min(free - (1 << 19), 1 << 20)))
            out.flush()
    with pytest.raises(BuildError, match=r"the daemon's disk is full; free some space"):
        build_target(small_daemon, "router", SMALL, print, network_mode="none")
    ballast.unlink()
