"""One start of SGLang on the card's own path: shows that it comes up and answers, and fills the compilers' caches.

`python3 -m app.stack.warm --out FOLDER`; needs the server's bundle alone, neither the load driver nor the gate.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tarfile
import time
from pathlib import Path

from app.engine.probe import send_canary
from app.engine.sglang.engine import SglangEngine
from app.engine.sglang.installation import find_installation
from app.engine.sglang.served import read_served, require_heeded, split_settings
from app.engine.sglang.witness import read_testimonies
from app.errors import LabError, NotReadyError
from app.kernel.placed import PlacedKernel
from app.kernel.upstream import default_cache, fetch_base, pinned
from app.stack.local import LocalStack


def pristine_kernel(release: str) -> PlacedKernel:
    """SGLang's own file as a kernel that is selected by nothing."""
    base, pin = fetch_base(release), pinned(release)
    path = default_cache() / "files" / pin.file_sha256 / Path(pin.file).name
    return PlacedKernel("flashmla", "flashmla", path, base.sha256, base.sha256, None)


def warm(server: str, out: Path, folder: Path) -> list[str]:
    """Starts, asks for a completion, ends; what was seen, a line each. The log lies in `out` whatever happens."""
    served = read_served(split_settings(server))
    require_heeded(served)
    installation = find_installation(served.release)
    began = time.monotonic()
    try:
        with LocalStack(SglangEngine(served, installation, folder / "engine"), folder / "logs") as stack:
            endpoints = stack.up(pristine_kernel(served.release), "warm")
            ready_s = time.monotonic() - began
            canary = send_canary(endpoints)
            service = stack.pid("decode")
            if service is None:
                raise NotReadyError("decode ended after its first answer; its log says why")
            seen = read_testimonies(folder / "engine" / "evidence" / "warm", service)
    finally:
        out.mkdir(parents=True, exist_ok=True)
        for log in sorted((folder / "logs").glob("*.log")):
            shutil.copy2(log, out / log.name)
        _keep_caches(installation.home, out)
    return [
        f"ready after {ready_s:.0f} s, answered in {canary.seconds:.2f} s: {canary.text!r}",
        *(f"process {t.pid}: {t.kernel_file} {t.kernel_sha256[:12]}, {len(t.calls)} sm_120 calls" for t in seen),
    ]


def _keep_caches(home: Path | None, out: Path) -> None:
    if home is not None and (home / "caches").is_dir():
        with tarfile.open(out / "caches.tar.gz", "w:gz") as tar:
            tar.add(home / "caches", "caches")


def main(given: list[str] | None = None) -> int:
    """Warms up from the command line; 1 when the server did not come up or did not answer."""
    parser = argparse.ArgumentParser(prog="python3 -m app.stack.warm", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder for the log and caches.tar.gz")
    parser.add_argument("--server", default="topology=single", help="settings of the server, as compare has them")
    parser.add_argument("--folder", type=Path, default=Path("runs") / "warm", help="folder to work in")
    chosen = parser.parse_args(given)
    try:
        print("\n".join(warm(chosen.server, chosen.out, chosen.folder)))
    except LabError as fault:
        print(f"lab: {fault}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
