"""The simulated engine as the stack sees it: the command lines of its prefill and decode processes."""

from __future__ import annotations

import hashlib
import sys
from dataclasses import dataclass
from pathlib import Path

from app.engine import Command, Endpoints, Ports
from app.engine.proof import Proof, read_proof
from app.environment import ROOT
from app.kernel.placed import PlacedKernel

CALIBRATION = Path(__file__).with_name("calibration.yaml")
MODEL = "sim-deepseek-v4-flash"


@dataclass(frozen=True, slots=True)
class SimEngine:
    """Simulated timing from a calibration file, faster than life by time_scale, all noise drawn from the seed."""

    seed: int
    time_scale: float
    calibration: Path = CALIBRATION
    name: str = "sim"
    simulated: bool = True
    model: str = MODEL
    start_timeout_s: float = 30.0
    single: bool = False
    key_file: Path | None = None

    def manifest(self) -> dict[str, str]:
        digest = hashlib.sha256(self.calibration.read_bytes()).hexdigest()
        return {"engine": self.name, "model": self.model, "time_scale": f"{self.time_scale:g}", "calibration": digest}

    def prefill(self, ports: Ports, kernel: PlacedKernel) -> Command:
        return self._command("prefill", ports.prefill, ports, kernel, "prefill")

    def decode(self, ports: Ports, kernel: PlacedKernel, label: str) -> Command:
        return self._command("decode", ports.decode, ports, kernel, label)

    def proof(self, endpoints: Endpoints, service: int, log: Path) -> Proof:
        return read_proof(endpoints)

    def discard(self) -> None:
        """Nothing: the servers read the placed file itself."""

    def _command(self, role: str, port: int, ports: Ports, kernel: PlacedKernel, label: str) -> Command:
        argv = [sys.executable, "-m", "app.engine.sim", "--role", role, "--port", str(port)]
        argv += ["--bootstrap-port", str(ports.bootstrap), "--model", self.model]
        argv += ["--kernel-file", str(kernel.path), *(["--kernel", kernel.kernel] if kernel.kernel else [])]
        argv += ["--selector", kernel.selector, "--variant", kernel.variant]
        argv += ["--calibration", str(self.calibration), "--time-scale", f"{self.time_scale:g}"]
        argv += ["--seed", str(self.seed), "--start-seed", label, "--enable-cache-report", "--pdeathsig"]
        argv += ["--key-file", str(self.key_file)] if self.key_file else []
        return Command(tuple(argv), {"PYTHONPATH": str(ROOT)})
