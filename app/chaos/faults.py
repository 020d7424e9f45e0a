"""The kinds of fault that a campaign is put through, each with the words by which the lab must name it."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from app.chaos.stage import PHASES, Fault, Phase, Stage
from app.chaos.weather import Weather

# What of a service's death is heard: its name, or the driver's error when that came first.
SERVICES = ("decode", "prefill", "router")
LOADED: tuple[Phase, ...] = ("warm-up", "measuring", "stopping")
BALLAST = "ballast"
UNREADY = "router did not say it is ready"
# By the watch when the router no longer answers well, or by the guards of a window.
SPOILED = (UNREADY, "C=")


def killed(victim: str, phase: Phase) -> Fault:
    """SIGKILL to a service or the load driver. A decode that dies between blocks is replaced anyway."""
    replaced = (victim, phase) == ("decode", "between")
    must_say = () if replaced else ("the load driver ended" if victim == "driver" else victim,)
    act = partial(_kill, victim=victim)
    return Fault(f"{victim} killed, {phase}", phase, act, must_say=must_say, start=0 if phase == "between" else 1)


def kills(long: bool) -> list[Fault]:
    """Every service in every phase, and the driver while it runs; short: each phase once or twice."""
    if long:
        pairs: Sequence[tuple[str, Phase]] = [(v, p) for v in SERVICES for p in PHASES]
        return [killed(v, p) for v, p in [*pairs, *(("driver", p) for p in LOADED)]]
    short: Sequence[tuple[str, Phase]] = (
        ("decode", "measuring"), ("router", "measuring"), ("prefill", "start"), ("decode", "canary"),
        ("prefill", "warm-up"), ("decode", "stopping"), ("router", "between"), ("driver", "measuring"),
    )  # fmt: skip
    return [killed(v, p) for v, p in short]


def container_kills(long: bool) -> list[Fault]:
    """Containers killed: every service in every phase, or, short, each phase and each service."""
    short: Sequence[tuple[str, Phase]] = (
        ("prefill", "start"), ("router", "canary"), ("decode", "warm-up"), ("decode", "measuring"),
        ("prefill", "stopping"), ("router", "between"),
    )  # fmt: skip
    return [_container_killed(v, p) for v, p in ([(v, p) for v in SERVICES for p in PHASES] if long else short)]


def _container_killed(victim: str, phase: Phase) -> Fault:
    fault = killed(victim, phase)
    # Before each start containers that are missing are made anew.
    must_say = () if phase == "between" else fault.must_say
    return replace(fault, kind=f"{victim}'s container killed, {phase}", must_say=must_say)


def halted(victim: str) -> Fault:
    """SIGSTOP: the process is there and does nothing."""
    said = (UNREADY,) if victim == "router" else ()
    back = partial(_kill_quietly, victim=victim)
    return Fault(f"{victim} halted, measuring", "measuring", partial(_halt, victim=victim), back, must_say=said)


def weathers(long: bool) -> list[Fault]:
    """Bad weather between load and router; short leaves out what differs in degree alone."""
    found = [
        _weather("one stream stands still", Weather(stall=True), ("C=",), "warm-up"),
        _weather("router answers 503 to everything", Weather(refuse=True), SPOILED, "measuring"),
        _weather("rubbish instead of tokens", Weather(rubbish=True), SPOILED, "measuring"),
        _weather("slow network, 200 ms and 3 % loss", Weather(delay_s=0.2, loss=0.03), (), "warm-up"),
        _weather("connections reset", Weather(resets=0.02), SPOILED, "measuring"),
    ]
    if long:
        found += [
            _weather("router answers 503 from the start", Weather(refuse=True), SPOILED, "warm-up"),
            _weather("narrow line, 20 kB/s", Weather(bytes_per_s=20_000), (), "warm-up"),
            _weather("loss of 20 %", Weather(loss=0.2), (), "warm-up"),
            _weather("rubbish for an answer to the canary", Weather(rubbish=True), ("answer", "canary"), "canary"),
        ]
    return found


def wrong_model() -> Fault:
    """Decode comes up with another model name than the campaign's."""
    return Fault("decode serves another model", "between", _serve_another, _serve_own, ("served model is 'another'",))


def out_of_descriptors(victim: str) -> Fault:
    """A process that may open no more files or sockets than it has open now; "lab" is this one."""
    limit, back = (_limit_lab, _free_lab) if victim == "lab" else (partial(_limit, victim=victim), _free)
    return Fault(f"{victim} out of file descriptors", "warm-up", limit, back)


def disk_full(folder: Path) -> Fault:
    """The campaign's file system is filled to the last byte."""
    return Fault("disk full", "measuring", partial(_fill, folder=folder), partial(_drain, folder=folder), ("space",))


def _weather(kind: str, weather: Weather, must_say: tuple[str, ...], phase: Phase) -> Fault:
    return Fault(kind, phase, lambda stage: stage.set_weather(weather), lambda stage: stage.set_weather(), must_say)


def _kill(stage: Stage, victim: str) -> None:
    stage.kill(victim)


def _kill_quietly(stage: Stage, victim: str) -> None:
    # It may have been ended by the lab already.
    with contextlib.suppress(Exception):
        stage.kill(victim)


def _halt(stage: Stage, victim: str) -> None:
    stage.kill(victim, signal.SIGSTOP)


def _serve_another(stage: Stage) -> None:
    stage.engine.extra["decode"] = ("--model", "another")


def _serve_own(stage: Stage) -> None:
    stage.engine.extra.clear()


def _limit(stage: Stage, victim: str) -> None:
    pid = stage.pid(victim)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (_first_free(pid), _hard()))
    stage.kept[victim] = pid


def _free(stage: Stage) -> None:
    for pid in stage.kept.values():
        with contextlib.suppress(ProcessLookupError):
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (_hard(), _hard()))
    stage.kept.clear()


def _limit_lab(stage: Stage) -> None:
    stage.kept["soft"] = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    resource.setrlimit(resource.RLIMIT_NOFILE, (_first_free(os.getpid()), _hard()))


def _free_lab(stage: Stage) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (stage.kept.pop("soft"), _hard()))


def _first_free(pid: int) -> int:
    # The limit is on numbers, not on how many: above the lowest free one nothing can be opened.
    taken = {int(p.name) for p in Path(f"/proc/{pid}/fd").iterdir()}
    return next(n for n in range(len(taken) + 1) if n not in taken)


def _hard() -> int:
    return resource.getrlimit(resource.RLIMIT_NOFILE)[1]


def _fill(stage: Stage, folder: Path) -> None:
    with (folder / BALLAST).open("wb", buffering=0) as out, contextlib.suppress(OSError):
        while True:
            out.write(bytes(4096))


def _drain(stage: Stage, folder: Path) -> None:
    (folder / BALLAST).unlink(missing_ok=True)
