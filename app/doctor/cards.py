"""The GPUs as nvidia-smi tells: driver, compute capability, enough of them, idle, and their clock policy."""

from __future__ import annotations

from dataclasses import dataclass

from app.doctor.finding import Finding, fail, ok, skipped, warn
from app.doctor.host import Host
from app.errors import DriverMissingError, NotReadyError
from app.gpus import arch_of, query
from kernels.limits import LIMITS

FIELDS = ("name", "driver_version", "compute_cap", "memory.total", "memory.used", "persistence_mode")
CLOCKS = ("clocks.sm", "clocks.max.sm", "clocks_event_reasons.active")
# CUDA 13 in both pinned releases; below it an image's compatibility package must help out.
CUDA_DRIVER = 580
# The first driver that knows the card at all, by compute capability's major number.
FIRST_DRIVER = {9: 525, 10: 570, 12: 570}
IDLE_MIB = 1024
# Bit of NVML's reasons: clocks are held by what a user set.
USER_DEFINED = 0x2
NO_CARDS = skipped("no card was read", "mend the line driver first")


@dataclass(frozen=True, slots=True)
class Card:
    """One GPU. capability as NVIDIA writes it, such as 12.0; arch: the same as 120."""

    index: int
    name: str
    driver: str
    capability: str
    arch: int
    memory_mib: int
    used_mib: int
    persistent: bool


def cards(host: Host) -> tuple[Card, ...]:
    """Every GPU of this host; none when nvidia-smi is missing or fails."""
    try:
        return _read(host)
    except NotReadyError:
        return ()


def driver(host: Host) -> Finding:
    """NVIDIA's driver, new enough for the card and for CUDA 13."""
    try:
        found = _read(host)
    except DriverMissingError:
        return fail(
            "no nvidia-smi", f"install NVIDIA's driver {CUDA_DRIVER} or newer; without a GPU ask for --engine sim"
        )
    except NotReadyError as e:
        return fail(str(e), "reload the driver or reboot; dmesg | grep -i nvrm says why")
    version = found[0].driver
    major = int(version.partition(".")[0])
    first = max(FIRST_DRIVER.get(card.arch // 10, 0) for card in found)
    if major < first:
        return fail(f"driver {version} is older than these cards", f"install driver {CUDA_DRIVER} or newer")
    if major < CUDA_DRIVER:
        return warn(
            f"driver {version} reaches CUDA 13 through the image's compatibility package alone",
            f"install driver {CUDA_DRIVER} or newer",
        )
    return ok(f"driver {version}")


def capability(host: Host) -> Finding:
    """Whether the cards are what images and gate are compiled for."""
    if not (found := cards(host)):
        return NO_CARDS
    kinds = sorted({(card.name, card.capability) for card in found})
    named = ", ".join(f"{name} ({capability})" for name, capability in kinds)
    if len({capability for _, capability in kinds}) > 1:
        return fail(
            f"cards of several kinds: {named}",
            "keep to one kind by PREFILL_FIRST_GPU and DECODE_FIRST_GPU on a host of one kind",
        )
    arch = found[0].arch
    if arch == host.settings.cuda_arch:
        return ok(f"{named} is sm_{arch}")
    if arch in LIMITS:
        return fail(f"{named} is sm_{arch}, CUDA_ARCH is {host.settings.cuda_arch}", f"set CUDA_ARCH={arch} in .env")
    return fail(f"{named} is sm_{arch}", f"the lab's kernels are for {_archs()}; use such cards, or --engine sim")


def count(host: Host) -> Finding:
    """Enough GPUs for both roles, where the settings put them."""
    if not (found := cards(host)):
        return NO_CARDS
    s = host.settings
    needed = max(s.gpus("prefill").stop, s.gpus("decode").stop)
    asked = (
        f"PREFILL_TP={s.prefill_tp} from GPU {s.prefill_first_gpu}, DECODE_TP={s.decode_tp} from {s.decode_first_gpu}"
    )
    if needed > len(found):
        return fail(f"{len(found)} GPUs, {needed} are needed: {asked}", _smaller(len(found)))
    return ok(f"{len(found)} GPUs: {asked}")


def idle(host: Host) -> Finding:
    """Whether something else already holds memory on the cards."""
    if not (found := cards(host)):
        return NO_CARDS
    busy = [f"GPU {card.index}: {card.used_mib / 1024:.1f} GiB" for card in found if card.used_mib > IDLE_MIB]
    if busy:
        return warn(
            f"memory is in use on {', '.join(busy)}",
            "nvidia-smi names the processes; end them (invoke down, if the lab's)",
        )
    return ok(f"all {len(found)} cards are empty")


def clocks(host: Host) -> Finding:
    """Persistence and locked clocks; nvidia-smi shows a lock only as the reason that holds a clock."""
    if not (found := cards(host)):
        return NO_CARDS
    if off := [str(card.index) for card in found if not card.persistent]:
        return warn(f"persistence mode is off on GPU {', '.join(off)}", "sudo nvidia-smi -pm 1")
    try:
        read = query(CLOCKS, host.run)
    except NotReadyError as e:
        return warn(f"the clocks cannot be read: {e}", "lock them all the same: sudo nvidia-smi -lgc MHZ")
    if free := [card for card in read if not _held(card["clocks_event_reasons.active"])]:
        now, top = free[0]["clocks.sm"], free[0]["clocks.max.sm"]
        return warn(
            f"nvidia-smi shows no lock on {len(free)} of {len(read)} GPUs; the first runs at {now} of {top}",
            "sudo nvidia-smi -lgc MHZ, a clock held under load; if that is done, go on: idle cards may not show it",
        )
    return ok("persistence is on and clocks are held by a setting")


def _read(host: Host) -> tuple[Card, ...]:
    return tuple(
        Card(
            int(card["index"]),
            card["name"],
            card["driver_version"],
            card["compute_cap"],
            arch_of(card["compute_cap"]),
            _mib(card["memory.total"]),
            _mib(card["memory.used"]),
            card["persistence_mode"] == "Enabled",
        )
        for card in query(FIELDS, host.run)
    )


def _held(reasons: str) -> bool:
    return reasons.startswith("0x") and bool(int(reasons, 16) & USER_DEFINED)


def _mib(text: str) -> int:
    return int(text.removesuffix(" MiB")) if text[:1].isdigit() else 0


def _smaller(gpus: int) -> str:
    each = 1 << (gpus // 2).bit_length() - 1 if gpus > 1 else 0
    if not each:
        return "prefill and decode need a GPU each; use a host with more, or two hosts (compose.two-hosts.yml)"
    return f"set PREFILL_TP={each} DECODE_TP={each} DECODE_FIRST_GPU={each} in .env, if the model fits (line weights)"


def _archs() -> str:
    return ", ".join(limits.name for limits in LIMITS.values())
