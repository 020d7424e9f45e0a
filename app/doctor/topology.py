"""How the GPUs reach each other, and what of the host can make that hang: IOMMU and PCIe access control (ACS)."""

from __future__ import annotations

import re

from app.command import NOT_FOUND
from app.doctor.cards import NO_CARDS, cards
from app.doctor.finding import Finding, ok, skipped, warn
from app.doctor.host import Host

# Only both together avoid the hang that access control causes between two ranks (vllm-project/vllm#51513).
NO_P2P = (
    "add --disable-custom-all-reduce to PREFILL_EXTRA_ARGS and DECODE_EXTRA_ARGS, and NCCL_P2P_DISABLE=1 to both "
    "services' environment"
)
_ROW = re.compile(r"^\s*GPU(\d+)((?:\s+(?:X|OK|CNS|GNS|TNS|NS|DR|U))+)\s*$")


def peers(host: Host) -> Finding:
    """Whether every GPU in use can read and write every other's memory."""
    if not (found := cards(host)):
        return NO_CARDS
    if len(found) == 1:
        return ok("one GPU, no peers")
    used = sorted({*host.settings.gpus("prefill"), *host.settings.gpus("decode")} & {card.index for card in found})
    barred: list[str] = []
    for way, name in (("r", "read"), ("w", "write")):
        asked = host.run(("nvidia-smi", "topo", "-p2p", way))
        if not (matrix := peer_matrix(asked.out)):
            return warn(f"nvidia-smi tells no peer access: {asked.said}", f"if ranks hang at start, {NO_P2P}")
        barred += [f"{a}-{b} {name} {matrix[a, b]}" for a in used for b in used if a < b and matrix.get((a, b)) != "OK"]
    if barred:
        return warn(f"no peer access: GPU {', '.join(barred[:4])}{' ...' if len(barred) > 4 else ''}", NO_P2P)
    return ok(f"peer access between all of GPU {', '.join(map(str, used))} ({links(host)})")


def peer_matrix(text: str) -> dict[tuple[int, int], str]:
    """Status by pair of GPU indices from `nvidia-smi topo -p2p`."""
    rows = [match for match in map(_ROW.match, text.splitlines()) if match]
    return {(int(row[1]), other): status for row in rows for other, status in enumerate(row[2].split())}


def links(host: Host) -> str:
    """The kinds of link between GPUs in `nvidia-smi topo -m`, such as NV18 or PHB, SYS."""
    # The heading is underlined by escape codes where nvidia-smi thinks that it may.
    text = re.sub(r"\x1b\[\d*m", "", host.run(("nvidia-smi", "topo", "-m")).out)
    rows = [line.split() for line in text.splitlines() if re.match(r"GPU\d+\s", line)]
    return ", ".join(sorted({kind for row in rows for kind in row[1 : len(rows) + 1] if kind != "X"})) or "link unknown"


def iommu(host: Host) -> Finding:
    """An IOMMU that translates stands between PCIe peers."""
    folder = host.root / "sys/kernel/iommu_groups"
    groups = sorted(group.name for group in folder.iterdir()) if folder.is_dir() else []
    if not groups:
        return ok("no IOMMU is at work")
    kinds = {host.read(f"sys/kernel/iommu_groups/{group}/type") for group in groups}
    if kinds == {"identity"}:
        return ok(f"the IOMMU passes through ({len(groups)} groups)")
    return warn(
        f"the IOMMU translates ({len(groups)} groups); peers on PCIe can hang or go slow",
        f"boot with iommu=pt, or switch the IOMMU off in the firmware; else {NO_P2P}",
    )


def access_control(host: Host) -> Finding:
    """PCIe bridges that send peer traffic up to the root complex."""
    asked = host.run(("lspci", "-vvv"))
    if asked.code == NOT_FOUND:
        return skipped("no lspci", "install pciutils and run the doctor as root to see it")
    if not re.search(r"^\s*ACSCtl:", asked.out, re.MULTILINE):
        if "<access denied>" in asked.out:
            return skipped("lspci may not read it", "run the doctor as root to see it")
        return ok("no bridge with access control")
    redirecting = redirecting_bridges(asked.out)
    if redirecting:
        named = f"{', '.join(redirecting[:3])}{' ...' if len(redirecting) > 3 else ''}"
        remedy = f"switch ACS off in the firmware, or: sudo setpci -s {redirecting[0]} ECAP_ACS+6.w=0 for each"
        return warn(f"{len(redirecting)} bridges redirect peer traffic: {named}", remedy)
    return ok("no bridge redirects peer traffic")


def redirecting_bridges(text: str) -> list[str]:
    """Addresses whose ACS control redirects requests, in the output of `lspci -vvv`."""
    devices = re.split(r"^(?=(?:[0-9a-f]{4,}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7] )", text, flags=re.MULTILINE)
    return [device.split()[0] for device in devices if re.search(r"^\s*ACSCtl:.*ReqRedir\+", device, re.MULTILINE)]
