"""Runs `docker compose` on the lab's files with settings that are already resolved."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from app.environment import ROOT
from app.errors import ComposeMissingError, NotReadyError
from app.stack.process import die_with_parent
from loadtest.client.key import key_file

COMMAND_TIMEOUT_S = 300.0
KEYED = "compose.key.yml"
# Without the plugin, docker takes the first option for one of its own.
NO_PLUGIN = re.compile(r"is not a docker command|unknown command: docker compose|unknown shorthand flag: 'p' in -p")
INSTALL = "install docker-compose-plugin for this user, see https://docs.docker.com/compose/install/linux/"
FAULTS: tuple[tuple[str, str], ...] = (
    (r"port is already allocated|address already in use", "a published port is taken; change ROUTER_PUBLISH"),
    (r"could not select device driver|nvidia", "this daemon has no NVIDIA runtime; install nvidia-container-toolkit"),
    (r"bind source path does not exist", "MODEL_PATH names no folder on the daemon's host"),
    (r"No such image|pull access denied", "an image is missing; build it first with: invoke build"),
    (r"Cannot connect to the Docker daemon|connection refused|EOF", "the Docker daemon does not answer; start it"),
)


@dataclass(frozen=True, slots=True)
class Compose:
    """One compose project: its files, later ones overriding earlier ones, and its settings."""

    project: str
    files: tuple[str, ...]

    def command(self, *arguments: str) -> list[str]:
        """The argument list; the settings come from the environment alone, so no .env is read a second time."""
        files = [part for name in self.files for part in ("-f", str(ROOT / name))]
        return ["docker", "compose", "-p", self.project, "--env-file", os.devnull, *files, *arguments]

    def run(self, settings: Mapping[str, str], *arguments: str) -> str:
        """Standard output of a compose command; NotReadyError with the meaning of what it says when it fails.

        ComposeMissingError where there is no compose to run.
        """
        environment = {**os.environ, **settings, "COMPOSE_ANSI": "never", "COMPOSE_PROGRESS": "plain"}
        try:
            done = subprocess.run(
                self.command(*arguments),
                env=environment,
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=COMMAND_TIMEOUT_S,
                # Or it would go on starting containers behind the back of what cleans up after a killed lab.
                preexec_fn=die_with_parent(os.getpid()),
            )
        except FileNotFoundError as e:
            raise ComposeMissingError("no docker command here; install Docker Engine with its compose plugin") from e
        except subprocess.TimeoutExpired as e:
            raise NotReadyError(f"docker compose {arguments[0]} took over {COMMAND_TIMEOUT_S:.0f} s") from e
        if done.returncode != 0 and NO_PLUGIN.search(done.stderr):
            raise ComposeMissingError(f"docker has no compose plugin; {INSTALL}")
        if done.returncode != 0:
            raise NotReadyError(f"docker compose {arguments[0]}: {compose_fault(done.stderr)}")
        return done.stdout


def compose_fault(said: str) -> str:
    """The last line that compose wrote, with its meaning where that is known."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    last = lines[-1] if lines else "no message"
    return next((f"{meaning} ({last})" for pattern, meaning in FAULTS if re.search(pattern, said)), last)


def compose_files(engine: str, overrides: Sequence[str] = ()) -> tuple[str, ...]:
    """The files for an engine: the GPU stack, or the simulated one over it."""
    missing = [name for name in overrides if not (ROOT / Path(name)).is_file()]
    if missing:
        raise NotReadyError(f"compose file {', '.join(missing)} does not exist")
    # The simulated engine asks for no key in containers.
    keyed = engine != "sim" and key_file(os.environ) is not None and KEYED not in overrides
    own = ("compose.sim.yml",) if engine == "sim" else (KEYED,) if keyed else ()
    return ("docker-compose.yml", *own, *overrides)
