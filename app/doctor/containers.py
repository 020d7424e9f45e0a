"""Docker as the lab uses it: daemon, Compose, NVIDIA runtime, base images and the daemon's disk."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

from app.command import NOT_FOUND
from app.doctor.finding import Finding, fail, ok, skipped, warn
from app.doctor.host import GIB, Host
from app.image.daemon import explained

INFO = ("docker", "info", "--format", "{{json .}}")
CONTEXT = ("docker", "context", "inspect", "--format", "{{.Endpoints.docker.Host}}")
DEFAULT_SOCKET = "unix:///var/run/docker.sock"
# compose.sim.yml replaces mappings with !override, which came with this version.
WANTED_COMPOSE = (2, 24, 4)
PRESENT_NEED_GIB = 10
# SGLang's image unpacks to about 40 GB, and the packed layers lie beside it while it is pulled.
PULL_NEED_GIB = 70
SIM_NEED_GIB = 3
NO_DAEMON = skipped("no daemon was read", "mend the line docker first")


def daemon(host: Host) -> Finding:
    """Whether the daemon answers, and whether command and SDK mean the same one."""
    asked = host.run(INFO)
    if asked.code == NOT_FOUND:
        return fail("no docker command", "install Docker Engine with its compose plugin")
    if not (info := daemon_info(host)):
        return fail(f"no daemon answers: {asked.said}", _daemon_remedy(asked.said))
    version = f"Engine {info['ServerVersion']}"
    mine, theirs = os.environ.get("DOCKER_HOST", DEFAULT_SOCKET), host.run(CONTEXT).out.strip()
    if theirs and theirs != mine:
        return fail(f"{version} at {theirs}, but builds ask {mine}", f"export DOCKER_HOST={theirs}")
    if not mine.startswith("unix:"):
        return warn(
            f"{version} at {mine}", "run the doctor there too: lines on cards, model and ports speak of this host"
        )
    return ok(f"{version} at {mine}")


def daemon_info(host: Host) -> dict[str, Any]:
    """What the daemon says of itself; empty when none answers."""
    try:
        info: dict[str, Any] = json.loads(host.run(INFO).out)
    except ValueError:
        return {}
    return info if info.get("ServerVersion") else {}


def compose(host: Host) -> Finding:
    """Docker Compose as a plugin, new enough for the lab's files."""
    asked = host.run(("docker", "compose", "version", "--short"))
    if asked.code != 0:
        return fail(f"no compose plugin: {asked.said}", "install docker-compose-plugin")
    version = asked.out.strip().removeprefix("v")
    numbers = tuple(int(n) for n in re.findall(r"\d+", version)[:3])
    if numbers < WANTED_COMPOSE:
        wanted = ".".join(map(str, WANTED_COMPOSE))
        return fail(f"Compose {version}, older than {wanted}", "upgrade docker-compose-plugin")
    return ok(f"Compose {version}")


def nvidia_runtime(host: Host) -> Finding:
    """Whether the daemon can hand GPUs to a container."""
    if not (info := daemon_info(host)):
        return NO_DAEMON
    if "nvidia" in (info.get("Runtimes") or {}):
        return ok("the daemon has the runtime nvidia")
    configure = "sudo nvidia-ctk runtime configure --runtime=docker && sudo systemctl restart docker"
    devices = [str(d.get("ID")) for d in info.get("DiscoveredDevices") or [] if "nvidia.com/gpu" in str(d.get("ID"))]
    if devices:
        return warn(
            f"the daemon has GPUs as CDI devices alone ({len(devices)}); not every Engine takes those", configure
        )
    if host.run(("nvidia-ctk", "--version")).code == 0:
        return warn("nvidia-container-toolkit is installed, but the daemon lists no runtime of it", configure)
    return fail("the daemon has no NVIDIA runtime", "install nvidia-container-toolkit and restart the daemon")


def sglang_image(host: Host) -> Finding:
    """The image that serves: here or to be had, and of the release that the gate patches."""
    image, release = host.settings.sglang_image, host.settings.sglang_release
    tag = re.search(r":v(\d[\w.]*)", image)
    if tag and tag.group(1) != release:
        return fail(f"SGLANG_IMAGE is {tag.group(1)}, SGLANG_RELEASE {release}", "give both one release in .env")
    return _image(host, image)


def python_image(host: Host) -> Finding:
    """The base of router, load page and simulated engine."""
    return _image(host, host.settings.python_image)


def docker_disk(host: Host) -> Finding:
    """Room where the daemon keeps images."""
    if not (info := daemon_info(host)):
        return NO_DAEMON
    folder = Path(info.get("DockerRootDir") or "/var/lib/docker")
    free_gib = host.disk(folder)[1] / GIB
    need_gib = _need_gib(host)
    if free_gib < need_gib:
        remedy = 'docker system df shows what is kept, docker image prune frees it; or move "data-root"'
        return fail(f"{free_gib:.0f} GiB free at {folder}, {need_gib} are needed", remedy)
    return ok(f"{free_gib:.0f} GiB free at {folder}, {need_gib} needed")


def _need_gib(host: Host) -> int:
    if host.engine == "sim":
        return SIM_NEED_GIB
    return PRESENT_NEED_GIB if _present(host, host.settings.sglang_image) else PULL_NEED_GIB


def _present(host: Host, image: str) -> bool:
    return host.run(("docker", "image", "inspect", "--format", "{{.Id}}", image)).code == 0


def _image(host: Host, image: str) -> Finding:
    if not daemon_info(host):
        return NO_DAEMON
    short = image.partition("@")[0]
    if _present(host, image):
        return ok(f"{short} is here")
    asked = host.run(("docker", "manifest", "inspect", image))
    if asked.code != 0:
        return fail(
            f"{short} is not here: {explained(asked.said, 'linux/amd64')}", f"docker pull {image}, or docker load it"
        )
    return warn(f"{short} is not here; its registry has it", f"docker pull {image} now, not in the first build")


def _daemon_remedy(said: str) -> str:
    if "permission denied" in said:
        return "add yourself to the group docker (sudo usermod -aG docker $USER) and log in again"
    return "start it (sudo systemctl start docker), or set DOCKER_HOST"
