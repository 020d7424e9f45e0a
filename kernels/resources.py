"""What a kernel's configurations need on a target that is not here: registers, spills, shared memory, occupancy."""

from __future__ import annotations

import contextlib
import hashlib
import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from kernels.compiler import DROPPED_SILENTLY
from kernels.extract import extract_kernel
from kernels.geometry import Geometry
from kernels.inquiry import compile_requests
from kernels.limits import LIMITS, Limits
from kernels.signature import Config, Signature
from kernels.toolchain import Toolchain, ToolchainError, cache_folder, installed_toolchain, unusable

FOLDER = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Resources:
    """One configuration compiled for one target. Counts are of instructions as they stand in the code.

    stack_bytes and spill_bytes are per thread; stack_bytes includes the spills. error is None when it compiled;
    dropped says that Triton's autotuner leaves such a failure out without a word. kernel is the function's name.
    """

    config: Config
    arch: int
    triton_version: str
    use: str = ""
    kernel: str = ""
    shared_bytes: int = 0
    registers: int = 0
    spill_bytes: int = 0
    stack_bytes: int = 0
    num_warps: int = 0
    instructions: int = 0
    wide_loads: int = 0
    cp_async: int = 0
    matrix_loads: int = 0
    mma: int = 0
    byte_loads: int = 0
    code_sha256: str = ""
    error: str | None = None
    dropped: bool = False
    limits: Limits = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "limits", LIMITS[self.arch])

    @property
    def fits(self) -> bool:
        """Whether it can be launched at all."""
        return self.error is None and self.ctas_per_sm > 0

    @property
    def ctas_per_sm(self) -> int:
        """CTAs resident on one SM."""
        if self.error is not None:
            return 0
        return self.limits.ctas_per_sm(self.shared_bytes, self.registers, self.num_warps)

    @property
    def warps_per_sm(self) -> int:
        """Warps resident on one SM."""
        return self.ctas_per_sm * self.num_warps

    @property
    def identity(self) -> tuple[str, int, int]:
        """Equal for two configurations that are the same launch of the same machine code."""
        return self.code_sha256, self.num_warps, self.shared_bytes

    def to_json(self) -> dict[str, Any]:
        """A plain mapping; config as the variant's file has it, beside its short form."""
        facts = [f.name for f in fields(self) if f.name not in ("config", "arch", "triton_version", "limits")]
        return {
            "config": str(self.config),
            "constants": dict(self.config.constants),
            "num_stages": self.config.num_stages,
            **{name: getattr(self, name) for name in facts},
            "fits": self.fits,
            "ctas_per_sm": self.ctas_per_sm,
            "warps_per_sm": self.warps_per_sm,
        }


def compile_kernel(
    source: str,
    kernel: str,
    signature: Signature,
    config: Config,
    arch: int,
    geometry: Geometry,
    toolchain: Toolchain | None = None,
) -> Resources:
    """Compile one configuration of `kernel` of the module text `source`; no GPU, no import but what the kernel uses.

    Of a kernel launched in several ways, the first. A failed compilation is a Resources with an error; ExtractError and
    SignatureError say that it could not be tried.
    """
    alone = replace(signature, others=())
    return compile_all(source, kernel, alone, [config], arch, geometry, toolchain)[0]


@dataclass(frozen=True, slots=True)
class Compilation:
    """One configuration of a kernel in one of the ways it is launched, ready to be compiled for one target."""

    config: Config
    use: Signature
    arch: int
    request: Mapping[str, Any]


def compile_all(
    source: str,
    kernel: str,
    signature: Signature,
    configs: Sequence[Config],
    arch: int,
    geometry: Geometry,
    toolchain: Toolchain | None = None,
) -> list[Resources]:
    """Compile every configuration in every way the kernel is launched, as `compile_prepared` does."""
    return compile_prepared(prepare(source, kernel, signature, configs, arch, geometry), toolchain)


def prepare(
    source: str, kernel: str, signature: Signature, configs: Sequence[Config], arch: int, geometry: Geometry
) -> list[Compilation]:
    """Every configuration in every way the kernel is launched, those of one configuration together.

    Not to be called in two threads at once: CPython 3.11 loses count when both build syntax trees. ExtractError and
    SignatureError say that the kernel cannot be tried.
    """
    if arch not in LIMITS:
        raise ValueError(f"no limits known for arch {arch}; known: {', '.join(map(str, LIMITS))}")
    text = extract_kernel(source, kernel)
    return [
        Compilation(config, use, arch, _request(source, text, kernel, config, use, arch, geometry))
        for config in configs
        for use in signature.uses
    ]


def compile_prepared(prepared: Sequence[Compilation], toolchain: Toolchain | None = None) -> list[Resources]:
    """Compile them two at a time, each in its own process and each different one once; results in the given order.

    Threads that call at once compile one after the other. Results are kept on disk by content: source of the kernel,
    launch, target, Triton version, and this code; ToolchainError where they cannot be.
    """
    chain = toolchain or installed_toolchain()
    keys = [_key(one.request, chain) for one in prepared]
    answers = _answers({key: one.request for key, one in zip(keys, prepared, strict=True)}, chain)
    return [_resources(one, chain, answers[key]) for key, one in zip(keys, prepared, strict=True)]


def _request(
    source: str, text: str, kernel: str, config: Config, use: Signature, arch: int, geometry: Geometry
) -> dict[str, Any]:
    arguments, constants = use.bind(source, geometry, config)
    return {
        "source": text, "kernel": kernel, "arguments": arguments, "constants": constants, "arch": arch,
        "options": use.options(source, config),
    }  # fmt: skip


def _resources(one: Compilation, chain: Toolchain, answer: Mapping[str, Any]) -> Resources:
    facts = {name: value for name, value in answer.items() if name != "error_kind"}
    dropped = answer.get("error_kind", "") in DROPPED_SILENTLY
    return Resources(one.config, one.arch, chain.version, one.use.use, one.use.kernel, dropped=dropped, **facts)


def _key(request: Mapping[str, Any], chain: Toolchain) -> str:
    text = json.dumps([request, chain.version, _compiler_sha256()], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _answers(requests: Mapping[str, Mapping[str, Any]], chain: Toolchain) -> dict[str, dict[str, Any]]:
    kept = {key: cache_folder() / "gate" / f"{key}.json" for key in requests}
    answers = {key: dict(json.loads(path.read_text())) for key, path in kept.items() if path.is_file()}
    missing = [key for key in requests if key not in answers]
    if not missing:
        return answers
    with contextlib.closing(compile_requests([requests[key] for key in missing], chain)) as compiled:
        for number, answer in compiled:
            answers[missing[number]] = answer
            # A crash may be the machine's fault; every other answer follows from the key.
            if answer.get("error_kind") != "Crash":
                _keep(kept[missing[number]], answer)
    return answers


def _keep(path: Path, answer: Mapping[str, Any]) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as file:
            json.dump(answer, file)
        Path(file.name).replace(path)
    except OSError as error:
        raise ToolchainError(unusable(error.strerror or error)) from error


def _compiler_sha256() -> str:
    parts = [(FOLDER / name).read_bytes() for name in ("compiler.py", "sass.py")]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()
