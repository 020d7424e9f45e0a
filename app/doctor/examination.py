"""All checks in their order, which of them an engine on a runtime needs, and how they are told."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass

from rich.console import Console
from rich.text import Text

from app.campaign.runtimes import Setup
from app.command import remembering, run_command
from app.doctor import cards, containers, model, ports, python, resources, topology
from app.doctor.finding import Finding, skipped
from app.doctor.host import Host
from app.errors import NotReadyError, UsageError
from app.kernel.upstream import default_cache
from app.settings import settings_here

SCHEMA = 1
STYLES = {"ok": "green", "warn": "yellow", "fail": "bold red", "skipped": "dim"}


@dataclass(frozen=True, slots=True)
class Check:
    """A named check; engine and runtime: the only ones that need it, None for all."""

    name: str
    look: Callable[[Host], Finding]
    engine: str | None = None
    runtime: str | None = None

    def on(self, host: Host) -> Finding:
        """What it finds, or that the asked engine or runtime does not need it."""
        for option, needed, asked in (("engine", self.engine, host.engine), ("runtime", self.runtime, host.runtime)):
            if needed not in (None, asked):
                return skipped(f"{option} {asked} does not need it", f"--{option} {needed} looks at it")
        return self.look(host)


CHECKS = (
    Check("python", python.interpreter),
    Check("environment", python.virtual_environment),
    Check("locks", python.locks),
    Check("wheel", python.wheel),
    Check("triton", python.triton),
    Check("runs", resources.runs_disk),
    Check("memory", resources.memory),
    Check("cpus", resources.processors),
    Check("load", resources.load),
    Check("labs", resources.labs),
    Check("open files", resources.open_files),
    Check("docker", containers.daemon, runtime="docker"),
    Check("compose", containers.compose, runtime="docker"),
    Check("docker disk", containers.docker_disk, runtime="docker"),
    Check("python image", containers.python_image, runtime="docker"),
    Check("ports", ports.ports, runtime="docker"),
    Check("sglang image", containers.sglang_image, engine="sglang", runtime="docker"),
    Check("nvidia runtime", containers.nvidia_runtime, engine="sglang", runtime="docker"),
    Check("shared memory", resources.shared_memory, engine="sglang", runtime="docker"),
    Check("driver", cards.driver, engine="sglang"),
    Check("capability", cards.capability, engine="sglang"),
    Check("gpus", cards.count, engine="sglang"),
    Check("idle", cards.idle, engine="sglang"),
    Check("clocks", cards.clocks, engine="sglang"),
    Check("peers", topology.peers, engine="sglang"),
    Check("iommu", topology.iommu, engine="sglang"),
    Check("acs", topology.access_control, engine="sglang"),
    Check("model", model.folder, engine="sglang"),
    Check("geometry", model.geometry, engine="sglang"),
    Check("weights", model.weights, engine="sglang"),
)


def show_doctor(engine: str, runtime: str, as_json: bool) -> None:
    """Examines this machine for an engine on a runtime and prints the lines; NotReadyError when one failed.

    An empty runtime is the one that the engine has.
    """
    host = this_host(engine, runtime or ("docker" if engine == "sglang" else "local"))
    findings = examine(host)
    if as_json:
        print(json.dumps(as_data(host, findings), indent=1))
    else:
        print_findings(findings, Console())
    if failed := failures(findings):
        raise NotReadyError(
            f"{len(failed)} of {len(findings)} checks failed ({', '.join(failed)}); mend them, then ask again"
        )


def this_host(engine: str, runtime: str) -> Host:
    """The machine this runs on, with the settings of this folder."""
    Setup(runtime, engine)
    if (engine, runtime) == ("sglang", "local"):
        raise UsageError("engine 'sglang' runs under --runtime docker; local knows sim")
    return Host(engine, runtime, settings_here(os.environ), remembering(run_command), default_cache())


def examine(host: Host) -> dict[str, Finding]:
    """Every check's finding by name, in order."""
    return {check.name: check.on(host) for check in CHECKS}


def failures(findings: Mapping[str, Finding]) -> list[str]:
    """Names of the checks that failed."""
    return [name for name, finding in findings.items() if finding.status == "fail"]


def as_data(host: Host, findings: Mapping[str, Finding]) -> dict[str, object]:
    """Plain data of the JSON form."""
    return {
        "schema": SCHEMA,
        "engine": host.engine,
        "runtime": host.runtime,
        "ready": not failures(findings),
        "checks": [{"check": name, **asdict(finding)} for name, finding in findings.items()],
    }


def print_findings(findings: Mapping[str, Finding], console: Console) -> None:
    """One line a check, or for all that found the same; never wrapped, so that lines can be searched and copied."""
    width = max(map(len, findings))
    for finding in dict.fromkeys(findings.values()):
        names = ", ".join(name for name, other in findings.items() if other == finding)
        line = Text.assemble((f"{finding.status:8}", STYLES[finding.status]), f"{names:{width}}  {finding.found}")
        if finding.remedy:
            line.append(f"  -> {finding.remedy}", style="italic")
        console.print(line, soft_wrap=True)
