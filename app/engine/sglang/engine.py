"""SGLang itself as the local stack sees it: command lines, a package for each variant, and proof of what runs."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.engine import ALONE, FORCED, Command, Ports
from app.engine.sglang.environment import engine_environment, service_variables
from app.engine.sglang.installation import Installation
from app.engine.sglang.local import Role, server_arguments
from app.engine.sglang.model import model_digest, write_model
from app.engine.sglang.package import PrivatePackage, make_private, write_plugin
from app.engine.sglang.running import Running
from app.engine.sglang.served import Served
from app.errors import NotReadyError, ProofError, UsageError
from app.gpus import arch_of, query
from app.kernel.placed import PlacedKernel
from app.kernel.upstream import pinned
from kernels.geometry import Geometry, read_geometry

if TYPE_CHECKING:
    from app.engine import Endpoints
    from app.engine.inspection import Inspection
    from app.engine.proof import Proof
    from app.engine.sglang.inspector import Inspector
    from app.engine.sglang.prebuilt import Ahead, Prebuilder

# The one release whose branch the hooks know; 0.5.23 takes it by another name.
FORCEABLE = ("0.5.17",)
OWN_ARCH = 120
FLASHMLA_ARCH = 90
# FlashMLA's forms; with any other number of heads it ends the server, in prefill as in decode ("Unsupported h_q").
FLASHMLA_HEADS = (64, 128)


class SglangEngine:
    """Real servers. Everything it writes lies under `folder`; private packages go with `discard`."""

    name = "sglang"
    simulated = False

    def __init__(self, served: Served, installation: Installation, folder: Path) -> None:
        self.served, self.installation, self._folder = served, installation, folder.resolve()
        self.arch = served.arch or device_arch()
        if served.dummy:
            self.model_path = write_model(served.heads, served.layers, served.one_of)
        else:
            self.model_path = model_folder(served.model)
        self._pin = pinned(served.release)
        self.running: Running | None = None
        self._packages: dict[str, PrivatePackage] = {}
        self._prebuilder: Prebuilder | None = None
        self._inspector: Inspector | None = None
        if self.forced and served.release not in FORCEABLE:
            known = ", ".join(FORCEABLE)
            raise UsageError(f"sm_{self.arch} needs SGLang's sm_120 path forced, known for {known} only; use release")

    @property
    def model(self) -> str:
        return self.served.served_name

    @property
    def single(self) -> bool:
        return self.served.single

    @property
    def start_timeout_s(self) -> float:
        return self.served.start_timeout_s

    @property
    def forced(self) -> str:
        """Calls on which the sm_120 path is forced: decode or all; empty where it is the card's own."""
        asked = self.served.path
        if asked == "auto" and self.arch != OWN_ARCH:
            return "decode" if self._flashmla_takes_it else "all"
        if asked == "auto":
            return ""
        return "" if asked == "own" else asked

    @property
    def rank(self) -> Geometry:
        """The attention of one rank, as `rank_of`."""
        return rank_of(self.model_path, self.served.ranks)

    @property
    def _flashmla_takes_it(self) -> bool:
        return self.rank.padded().local_heads in FLASHMLA_HEADS

    @property
    def path_statement(self) -> str:
        """How attention reaches the kernels, for manifest and report."""
        alone = f"; one of {self.served.one_of} ranks {ALONE}" if self.served.one_of > 1 else ""
        if not self.forced:
            return f"sm_{self.arch}'s own{alone}"
        calls = f"sm_120's attention, {self.forced} calls"
        return f"{FORCED} on sm_{self.arch}: timings are this GPU's ({calls}){alone}"

    @property
    def _conditions(self) -> dict[str, str]:
        return {
            "engine": self.name,
            "model": self.model,
            "sglang": self.installation.version,
            "path": self.path_statement,
        }

    def manifest(self) -> dict[str, str]:
        nowhere = Ports(0, 0, 0, 0, 0)
        roles: tuple[Role, ...] = ("single",) if self.single else ("prefill", "decode")
        arguments = {r: " ".join(server_arguments(r, self.served, Path("MODEL"), nowhere)) for r in roles}
        environment = engine_environment(self.served, self.installation, self._folder / "caches" / "DIGEST")
        return {
            **self._conditions,
            "model_sha256": model_digest(self.model_path),
            "arch": f"sm_{self.arch}",
            "settings": json.dumps(self.served.recorded(), sort_keys=True),
            **{f"arguments.{role}": text for role, text in arguments.items()},
            **{f"environment.{key}": self._portable(value) for key, value in sorted(environment.items())},
        }

    def prefill(self, ports: Ports, kernel: PlacedKernel) -> Command:
        """Prefill on the package as it was found and the card's own attention, where it has one for these heads."""
        path = self.forced if self.forced == "all" else "own"
        variables = service_variables("flashmla", path, self.served, self._folder / "evidence" / "prefill")
        return self._command("prefill", ports, (), self._folder / "caches" / "prefill", variables)

    def decode(self, ports: Ports, kernel: PlacedKernel, label: str) -> Command:
        path, package = self._path(kernel), self._package(kernel)
        evidence = self._folder / "evidence" / label
        shutil.rmtree(evidence, ignore_errors=True)
        caches = self._folder / "caches" / kernel.sha256[:12]
        variables = service_variables(kernel.selector, path, self.served, evidence)
        command = self._command("single" if self.single else "decode", ports, (package.folder,), caches, variables)
        cache = Path(command.env["TRITON_CACHE_DIR"])
        ahead = self._put_ahead(kernel, cache)
        heads = self.rank.local_heads
        self.running = Running(kernel, package, self.arch, heads, path, evidence, cache, time.time(), ahead)
        return command

    def proof(self, endpoints: Endpoints, service: int, log: Path) -> Proof:
        """What the decode service (number of its first process) runs; ProofError when it is not what was placed."""
        from app.engine.sglang.evidence import prove

        if self.running is None:
            raise ProofError("decode was never started; bring the stack up first")
        return prove(self.running, service, log, self._conditions)

    def inspect(self, endpoints: Endpoints, service: int, asked: Inspection) -> dict[str, Any]:
        """What the start shows after its load, held against the campaign's other starts; as `Inspectable` has it."""
        from app.engine.sglang.inspector import Inspector

        if not self.served.inspected:
            return {}
        if self.running is None:
            raise ProofError("decode was never started; bring the stack up first")
        self._inspector = self._inspector or Inspector(self.served, self._folder / "inspection")
        return self._inspector.inspect(self.running, service, endpoints, asked)

    def discard(self) -> None:
        """Removes private packages, after checking that each is still what was put there."""
        held, self._packages, self.running = list(self._packages.values()), {}, None
        try:
            for package in held:
                package.check()
        finally:
            shutil.rmtree(self._folder / "packages", ignore_errors=True)

    def _command(
        self, role: Role, ports: Ports, packages: tuple[Path, ...], caches: Path, variables: Mapping[str, str]
    ) -> Command:
        plugin = write_plugin(self._folder / "plugin")
        places = (*packages, plugin, *self.installation.paths)
        env = engine_environment(self.served, self.installation, caches) | dict(variables)
        env["PYTHONPATH"] = ":".join(map(str, places))
        argv = server_arguments(role, self.served, self.model_path, ports)
        return Command((str(self.installation.python), "-m", "sglang.launch_server", *argv), env)

    def _put_ahead(self, kernel: PlacedKernel, cache: Path) -> Ahead | None:
        if not self.served.prebuilt or kernel.selector != "triton" or not kernel.kernel:
            return None
        # Needs the gate's packages, which a start on the card's own path does without.
        from app.engine.sglang.prebuilt import Prebuilder

        if self._prebuilder is None:
            self._prebuilder = Prebuilder(self.served, self.installation, self.rank, self.arch, self._pin.file)
        return self._prebuilder.put(kernel, cache)

    def _path(self, kernel: PlacedKernel) -> str:
        if kernel.selector == "flashmla" and self.arch != FLASHMLA_ARCH:
            raise UsageError(f"{kernel.variant} is sm_90's default and does not exist on sm_{self.arch}")
        if kernel.selector == "flashmla" and not self._flashmla_takes_it:
            known = " or ".join(map(str, FLASHMLA_HEADS))
            raise UsageError(f"{kernel.variant} takes {known} heads, a rank of {self.model} has others; leave it out")
        if kernel.selector == "flashinfer" and self.arch != OWN_ARCH:
            raise UsageError(f"{kernel.variant} needs FlashInfer's sm_120 kernels, which sm_{self.arch} cannot run")
        return (self.forced or "own") if kernel.selector == "triton" else "own"

    def _package(self, kernel: PlacedKernel) -> PrivatePackage:
        held = self._packages.get(kernel.variant)
        if held is None or held.sha256 != kernel.sha256:
            folder = self._folder / "packages" / kernel.variant
            held = make_private(self.installation.package, self._pin, kernel, folder)
        held.check()
        return self._packages.setdefault(kernel.variant, held)

    def _portable(self, value: str) -> str:
        """A value without this machine's paths, so that a campaign can go on elsewhere."""
        home = self.installation.home
        return value.replace(str(self._folder), "{run}").replace(str(home) if home else "\0", "{home}")


def device_arch() -> int:
    """Compute capability of the first GPU, such as 90; NotReadyError where there is none."""
    return arch_of(query(("compute_cap",))[0]["compute_cap"])


def rank_of(model: Path, ranks: int) -> Geometry:
    """The attention of one of so many ranks of a model; UsageError where it has none that these kernels serve."""
    try:
        return read_geometry(model, ranks)
    except ValueError as e:
        raise UsageError(f"{model} is of no model that these kernels serve: {e}") from e


def model_folder(text: str) -> Path:
    """The folder of a model of one's own; NotReadyError where it holds none."""
    folder = Path(text).expanduser()
    if not (folder / "config.json").is_file():
        raise NotReadyError(f"{folder}/config.json is missing; --model names a model's folder, or dummy-dsv4")
    return folder.resolve()
