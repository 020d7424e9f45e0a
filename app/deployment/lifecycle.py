"""A stack that outlives the command: brought up, switched, verified and taken down, each safe to repeat."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from app.deployment.stable import STATE
from app.engine import Endpoints
from app.engine.probe import Canary, send_canary
from app.errors import NotReadyError, ProofError
from app.image.build import BuiltImage, build_services, build_variant, placed_kernel, placed_tag, sweep_readers
from app.image.daemon import connect
from app.kernel.placed import PlacedKernel
from app.records import read_json, write_json
from app.settings import Deployment
from app.stack.docker import PROJECT, DockerStack
from app.stack.evidence import Evidence
from app.stack.published import require_ports_free
from app.stack.watch import Watch

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Serving:
    """A stack that serves: where, what the canary showed, and the two addresses that are open on this host."""

    endpoints: Endpoints
    canary: Canary
    router_url: str
    page_url: str


@dataclass(frozen=True, slots=True)
class Running:
    """What `up` was asked for, kept so that later commands speak of the same stack."""

    engine: str
    variant: str
    project: str = PROJECT
    overrides: tuple[str, ...] = ()


class Lifecycle:
    """Commands on one project's stack; `state` is the folder in which the stack is remembered."""

    def __init__(
        self,
        settings: Deployment,
        say: Say,
        *,
        project: str = PROJECT,
        overrides: Sequence[str] = (),
        state: Path = STATE,
    ) -> None:
        self._settings, self._say, self._project, self._overrides = settings, say, project, tuple(overrides)
        self._state, self._file = state, state / f"stack-{project}.json"

    def build(self, variant: str, engine: str) -> BuiltImage:
        """Builds a variant's image with live output."""
        return build_variant(variant, engine, self._settings, self._say, self._state / "locks")

    def up(self, variant: str, engine: str) -> Serving:
        """Builds what is missing, starts every service, waits for readiness and a canary, and verifies."""
        published = {"ROUTER_PUBLISH": self._settings.router_publish}
        require_ports_free(self._project, published | {"LOADTEST_PUBLISH": self._settings.loadtest_publish})
        prefill = self.build(self._settings.prefill_variant, engine).placed
        decode = self.build(variant, engine).placed
        build_services(self._settings, self._say)
        self._remember(Running(engine, variant, self._project, self._overrides))
        stack = self._stack(engine, prefill, self._overrides)
        return self._served(stack, stack.up(decode, f"serve/{variant}"))

    def switch(self, variant: str) -> Serving:
        """Replaces decode alone by another variant."""
        running = self.running()
        decode = self.build(variant, running.engine).placed
        return self.switch_to(decode)

    def switch_to(self, kernel: PlacedKernel) -> Serving:
        """Replaces decode alone by a built image."""
        running = self.running()
        prefill = placed_kernel(self._settings, self._settings.prefill_variant, running.engine)
        stack = self._stack(running.engine, prefill, running.overrides)
        self._remember(Running(running.engine, kernel.variant, running.project, running.overrides))
        return self._served(stack, stack.switch(kernel, f"serve/{kernel.variant}"))

    def restore(self, engine: str, tag: str) -> Serving | None:
        """Puts an image back into a running stack of this engine; None when there is none, or it runs that already."""
        running = self._recall()
        if running is None or running.engine != engine:
            return None
        kernel, stack = placed_tag(tag), self._stack(engine, None, running.overrides)
        if stack.alive() == [] and stack.evidence("decode").kernel_sha256 == kernel.sha256:
            return None
        return self.switch_to(kernel)

    def verify(self) -> list[Evidence]:
        """Reads the proof from inside prefill and decode; ProofError when anything disagrees."""
        running = self.running()
        stack = self._stack(running.engine, None, running.overrides)
        found = [stack.evidence(service) for service in ("prefill", "decode")]
        if found[1].identity.variant != running.variant:
            raise ProofError(f"decode runs {found[1].identity.variant}, but {running.variant} was brought up last")
        return found

    def down(self) -> None:
        """Removes containers, networks and cache volumes; nothing to do is no error."""
        running = self._recall() or Running("sim", "", self._project, self._overrides)
        self._stack(running.engine, None, running.overrides).down()
        sweep_readers(connect())
        self._file.unlink(missing_ok=True)

    def running(self) -> Running:
        """The stack that was brought up last; NotReadyError when there is none, or another than `up` started."""
        if found := self._recall():
            return found
        start = "invoke up --variant NAME --runtime docker"
        there = sorted(c.service for c in self._stack("sim", None, ()).containers() if c.state == "running")
        if there:
            raise NotReadyError(
                f"{', '.join(there)} of the stack {self._project} began without invoke up, so nothing says which "
                f"variant is to run; end it with `invoke down`, then: {start}"
            )
        raise NotReadyError(f"no stack is up; start one with: {start}")

    def _stack(self, engine: str, prefill: PlacedKernel | None, overrides: Sequence[str]) -> DockerStack:
        return DockerStack(
            self._settings,
            engine,
            prefill,
            project=self._project,
            overrides=overrides,
            extra=("loadtest",),
            say=self._say,
        )

    def _served(self, stack: DockerStack, endpoints: Endpoints) -> Serving:
        canary = Watch(stack, "").over(lambda: send_canary(endpoints), "at the canary")
        self.verify()
        here = [f"http://127.0.0.1:{p}" for p in (self._settings.router_publish, self._settings.loadtest_publish)]
        return Serving(endpoints, canary, *here)

    def _remember(self, running: Running) -> None:
        write_json(self._file, asdict(running))

    def _recall(self) -> Running | None:
        if not self._file.is_file():
            return None
        data = dict(read_json(self._file))
        return Running(**data | {"overrides": tuple(data["overrides"])})
