"""What the machine has: disk for runs, shared memory, open files, memory, and CPUs for the load client."""

from __future__ import annotations

import os
import re
import resource

from app.campaign.neighbours import cards_of, neighbours
from app.campaign.runtimes import Setup
from app.doctor.finding import Finding, fail, ok, skipped, warn
from app.doctor.host import GIB, Host

RUNS_NEED_GIB = 1
RUNS_WANTED_GIB = 5
# At 96 users the router holds three sockets a request.
OPEN_FILES = 1024
# What docker-compose.yml asks for; above the kernel's own limit no container starts.
CONTAINER_OPEN_FILES = 1_048_576
WANTED_SHM_GIB = 16
MEMORY_GIB = {"sim": 2, "sglang": 64}
CLIENT_CPUS = 4
# Load average per CPU up to which other work leaves the client in peace.
IDLE_SHARE = 0.5
SIM_CPUS = 2
_UNITS = {"": 1, "b": 1, "k": 1024, "m": 1024**2, "g": GIB, "t": 1024 * GIB}


def runs_disk(host: Host) -> Finding:
    """Room for the records of a campaign."""
    free_gib = host.disk(host.runs)[1] / GIB
    found = f"{free_gib:.1f} GiB free for {host.runs}"
    if free_gib < RUNS_NEED_GIB:
        return fail(found, "free some space, or make runs a link to a larger disk")
    if free_gib < RUNS_WANTED_GIB:
        return warn(found, f"a long campaign writes up to {RUNS_WANTED_GIB} GiB; remove old runs")
    return ok(found)


def shared_memory(host: Host) -> Finding:
    """SHM_SIZE of both servers' containers against memory and this host's own /dev/shm."""
    text = host.settings.shm_size
    if (size := size_bytes(text)) is None:
        return fail(f"SHM_SIZE {text!r} is no size", "write for example SHM_SIZE=32gb")
    total, here = memory_bytes(host, "MemTotal"), host.disk(host.root / "dev/shm")[0]
    found = f"SHM_SIZE={text} for each of two containers, {total / GIB:.0f} GiB memory, /dev/shm {here / GIB:.0f} GiB"
    if size < WANTED_SHM_GIB * GIB:
        return warn(found, f"NCCL dies on too little (sgl-project/sglang#4259); SHM_SIZE={WANTED_SHM_GIB}gb or more")
    if 2 * size > total:
        return warn(found, f"filling both would end the servers; {WANTED_SHM_GIB}gb each is enough, if the host has it")
    return ok(found)


def open_files(host: Host) -> Finding:
    """File descriptors for the load client, and for containers where they are started."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= soft < OPEN_FILES:
        raised = OPEN_FILES if hard < 0 else min(4 * OPEN_FILES, hard)
        return fail(f"{soft} open files, {OPEN_FILES} are needed", f"ulimit -n {raised}")
    top = host.read("proc/sys/fs/nr_open")
    if (host.engine, host.runtime) == ("sglang", "docker") and top.isdigit() and int(top) < CONTAINER_OPEN_FILES:
        return fail(
            f"fs.nr_open is {top}; containers ask for {CONTAINER_OPEN_FILES} open files",
            f"sudo sysctl fs.nr_open={CONTAINER_OPEN_FILES}",
        )
    return ok(f"{'any number of' if soft < 0 else soft} open files")


def memory(host: Host) -> Finding:
    """Memory that is free now."""
    free_gib, wanted_gib = memory_bytes(host, "MemAvailable") / GIB, MEMORY_GIB[host.engine]
    if free_gib < wanted_gib:
        return warn(
            f"{free_gib:.1f} GiB memory free, {wanted_gib} are wanted",
            "end what is not needed; ps aux --sort=-rss | head",
        )
    return ok(f"{free_gib:.1f} GiB memory free, {wanted_gib} wanted")


def processors(host: Host) -> Finding:
    """CPUs for the load client beside the servers: a client that waits for its turn measures itself."""
    s = host.settings
    wanted = SIM_CPUS if host.engine == "sim" else CLIENT_CPUS + s.prefill_tp + s.decode_tp
    here = cpus(host)
    if here < wanted:
        remedy = (
            "measure at fewer concurrencies; guards void what the client delays"
            if host.engine == "sim"
            else ("use a larger host, or drive the load from another one")
        )
        return warn(f"{here:g} CPUs, {wanted} are wanted", remedy)
    return ok(f"{here:g} CPUs, {wanted} wanted")


def load(host: Host) -> Finding:
    """Whether other work keeps the CPUs busy: it makes the load client late and voids blocks."""
    words = host.read("proc/loadavg").split()
    if not words:
        return skipped("no /proc/loadavg here", "look with uptime that nothing else keeps the CPUs busy")
    average, have = float(words[0]), cpus(host)
    found = f"load average {average:.1f} on {have:g} CPUs"
    if average > IDLE_SHARE * have:
        return warn(found, "end other work, and run one campaign at a time: a late client voids its blocks")
    return ok(found)


def labs(host: Host) -> Finding:
    """Whether another lab of this checkout measures on a card of ours: two at once void each other's blocks."""
    beside = neighbours(host.runs, cards_of(Setup(runtime=host.runtime, engine=host.engine)))
    if busy := [other.campaign for other in beside if not other.apart]:
        return warn(f"a lab measures {', '.join(busy)} now", "wait for it: two at once void each other's blocks")
    if beside:
        told = ", ".join(f"{other.campaign} on cards {other.cards}" for other in beside)
        return ok(f"a lab measures {told}, which are others than here; cores are not looked at")
    return ok("no other lab measures here")


def cpus(host: Host) -> float:
    """CPUs this process may use: its affinity under the control group's quota."""
    mine = len(os.sched_getaffinity(0))
    quota, _, period_us = host.read("sys/fs/cgroup/cpu.max").partition(" ")
    return min(mine, int(quota) / int(period_us)) if quota.isdigit() else mine


def size_bytes(text: str) -> int | None:
    """A size as Compose writes it, such as 32gb; None for what is none."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([bkmgt]?)b?", text.strip().lower())
    return int(float(found[1]) * _UNITS[found[2]]) if found else None


def memory_bytes(host: Host, field: str) -> int:
    """A field of /proc/meminfo; 0 when it is not there."""
    found = re.search(rf"^{field}:\s+(\d+) kB", host.read("proc/meminfo"), re.MULTILINE)
    return int(found[1]) * 1024 if found else 0
