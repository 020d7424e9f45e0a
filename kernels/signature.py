"""Signature files: the types and fixed values with which a Triton kernel is launched; its text alone does not tell."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import yaml

from kernels.extract import parameters
from kernels.geometry import Geometry
from kernels.tuned import Table

FOLDER = Path(__file__).parent / "signatures"
_KEYS = {
    "kernel",
    "block_h",
    "own_heads",
    "grid",
    "arguments",
    "constants",
    "variants_of_use",
    "further_uses",
    "table",
    "options",
    "companions",
    "num_warps",
}
_TABLE_KEYS = {"constant", "bounds", "settings", "words"}
# What Triton takes from a configuration besides the kernel's own arguments.
_OPTIONS = ("maxnreg",)
_USE_KEYS = {"name", "arguments", "constants"}
_TYPE = re.compile(r"(?P<kind>\*?[a-z][a-z0-9]*)(?P<aligned>:16)?(?:=(?P<value>\w+))?")


class SignatureError(ValueError):
    """A signature file is missing, malformed, or does not fit the kernel it names."""


class Config(Protocol):
    """One entry of an autotune list."""

    @property
    def constants(self) -> Mapping[str, int | bool | str]: ...
    @property
    def num_warps(self) -> int: ...
    @property
    def num_stages(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Argument:
    """One run-time argument. value: a whole number or a geometry name where the launch fixes it, else None."""

    name: str
    kind: str
    divisible: bool = False
    value: int | str | None = None


@dataclass(frozen=True, slots=True)
class Signature:
    """One way a kernel is launched. block_h says in words what one program covers; grid names the launch's axes.

    use names the way when there are several, each compiled on its own; table tells where choices made offline are kept.
    options: compiler options given to a launch for which the constant of that name is true. companions: kernels that
    the host launches beside this one, each with the constants for which it does. num_warps: of a companion. further:
    ways that need what the others need, which are compiled ahead and not looked at on their own. own_heads: the
    function of the file by which it is launched for a rank's own heads alone, where SGLang pads them.
    """

    kernel: str
    arguments: tuple[Argument, ...]
    constants: Mapping[str, Any]
    block_h: str = ""
    grid: tuple[str, ...] = ()
    use: str = ""
    others: tuple[Signature, ...] = ()
    table: Table | None = None
    options_by_constant: Mapping[str, str] = field(default_factory=dict)
    companions: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    num_warps: int = 4
    further: tuple[Signature, ...] = ()
    own_heads: str = ""

    @property
    def uses(self) -> tuple[Signature, ...]:
        """Every way it is launched, the first being this one."""
        return (self, *self.others)

    def bind(
        self, source: str, geometry: Geometry, config: Config
    ) -> tuple[list[tuple[str, str, bool]], dict[str, Any]]:
        """Arguments (name, type, divisible by 16) and constants of one launch, in the order of the kernel in `source`.

        An integer that the geometry fixes is specialised as Triton does at launch: 1 becomes a constant, a multiple of
        16 is marked. SignatureError when kernel, file and config do not name the same parameters.
        """
        wanted = parameters(source, self.kernel)
        names = [parameter.name for parameter in wanted]
        self._check([parameter.name for parameter in wanted if not parameter.constexpr])
        launch = {"num_warps": config.num_warps, "num_stages": config.num_stages}
        given = {p.name: p.default for p in wanted if p.constexpr and p.has_default}
        given |= {name: _value(value, geometry) for name, value in self.constants.items()}
        # Triton hands these two to a kernel that asks for them by name.
        given |= {name: value for name, value in config.constants.items() if name in names or name not in _OPTIONS}
        given |= {name: value for name, value in launch.items() if name in names}
        if stray := sorted(given.keys() - set(names)):
            raise SignatureError(f"{self.kernel} has no argument {', '.join(stray)}; it has {', '.join(names)}")
        if missing := [p.name for p in wanted if p.constexpr and p.name not in given]:
            raise SignatureError(
                f"no value for constexpr {', '.join(missing)} of {self.kernel}: add it to its signature file"
            )
        types = {argument.name: argument for argument in self.arguments}
        bound = [
            (p.name, "constexpr", False) if p.name in given else _specialise(types[p.name], geometry, p.specialised)
            for p in wanted
        ]
        ones = {name: 1 for name, kind, _ in bound if kind == "constexpr" and name not in given}
        return bound, given | ones

    def options(self, source: str, config: Config) -> dict[str, int]:
        """What of a configuration goes to the compiler instead of the kernel."""
        names = {parameter.name for parameter in parameters(source, self.kernel)}
        extra = {n: int(v) for n, v in config.constants.items() if n in _OPTIONS and n not in names}
        constants = {**self.constants, **config.constants}
        extra |= {name: True for name, constant in self.options_by_constant.items() if constants.get(constant)}
        return {"num_warps": config.num_warps, "num_stages": config.num_stages, **extra}

    def leaves_padding_out(self, source: str) -> bool:
        """Whether the file launches it for a rank's own heads alone."""
        return bool(self.own_heads) and f"\ndef {self.own_heads}(" in source

    def launched_on(self, rank: Geometry, source: str) -> tuple[Geometry, ...]:
        """What SGLang launches it for on a rank: decode's first; 0.5.23 does not pad prefill and batches above 64."""
        own = replace(rank, heads=rank.local_heads, tp=1)
        return (own,) if self.leaves_padding_out(source) else tuple(dict.fromkeys((rank.padded(), own)))

    def companions_of(self, config: Config) -> list[str]:
        """The kernels that the host launches beside this one under a configuration."""
        constants = {**self.constants, **config.constants}
        return [name for name, when in self.companions.items() if when.items() <= constants.items()]

    def _check(self, wanted: list[str]) -> None:
        have = [argument.name for argument in self.arguments]
        if have != wanted:
            odd = sorted(set(have) ^ set(wanted)) or ["their order"]
            raise SignatureError(f"signature file and kernel {self.kernel} differ in arguments: {', '.join(odd)}")


def load_signature(kernel: str, folder: Path = FOLDER) -> Signature:
    """The signature file of a kernel function; SignatureError names the file and what is wrong in it."""
    path = folder / f"{kernel}.yaml"
    if not path.is_file():
        known = ", ".join(sorted(p.stem for p in folder.glob("*.yaml")))
        raise SignatureError(f"no signature for kernel {kernel}; write {path} (known: {known or 'none'})")
    try:
        data = yaml.safe_load(path.read_text())
    except yaml.YAMLError as error:
        raise SignatureError(f"{path} is not YAML: {error}") from error
    _check_keys(path, data, _KEYS)
    if data.get("kernel") != kernel:
        raise SignatureError(f"{path}: kernel must be {kernel}, as the file's name says")
    base = Signature(
        kernel,
        _arguments(path, data.get("arguments")),
        _constants(path, data.get("constants")),
        str(data.get("block_h", "")),
        tuple(data.get("grid") or ()),
        table=_table(path, data["table"]) if "table" in data else None,
        options_by_constant=dict(data.get("options") or {}),
        companions=dict(data.get("companions") or {}),
        num_warps=int(data.get("num_warps", 4)),
        own_heads=str(data.get("own_heads", "")),
    )
    uses = [_use(path, base, entry) for entry in data.get("variants_of_use") or ()]
    further = tuple(_use(path, base, entry) for entry in data.get("further_uses") or ())
    first = uses[0] if uses else base
    return replace(first, others=tuple(uses[1:]), further=further)


def _use(path: Path, base: Signature, entry: Any) -> Signature:
    _check_keys(path, entry, _USE_KEYS)
    changed = {argument.name: argument for argument in _arguments(path, entry.get("arguments"))}
    if stray := sorted(changed.keys() - {argument.name for argument in base.arguments}):
        raise SignatureError(f"{path}: use {entry.get('name')!r} changes unknown arguments {', '.join(stray)}")
    return replace(
        base,
        use=str(entry.get("name", "")),
        arguments=tuple(changed.get(argument.name, argument) for argument in base.arguments),
        constants={**base.constants, **_constants(path, entry.get("constants"))},
    )


def _table(path: Path, entry: Any) -> Table:
    _check_keys(path, entry, _TABLE_KEYS)
    if missing := sorted(_TABLE_KEYS - {"words"} - set(entry)):
        raise SignatureError(f"{path}: table lacks {', '.join(missing)}")
    return Table(str(entry["constant"]), tuple(entry["bounds"]), tuple(entry["settings"]), entry.get("words") or {})


def _check_keys(path: Path, data: Any, known: set[str]) -> None:
    if not isinstance(data, dict):
        raise SignatureError(f"{path}: a mapping with {', '.join(sorted(known))} is needed, not {data!r}")
    if stray := sorted(set(data) - known):
        raise SignatureError(f"{path}: unknown {', '.join(map(str, stray))}; known: {', '.join(sorted(known))}")


def _arguments(path: Path, data: Mapping[str, Any] | None) -> tuple[Argument, ...]:
    return tuple(_argument(path, name, str(text)) for name, text in (data or {}).items())


def _argument(path: Path, name: str, text: str) -> Argument:
    match = _TYPE.fullmatch(text)
    if match is None:
        raise SignatureError(f"{path}: {name}: {text!r} is no type; write for example '*bf16:16', i64 or 'i32=heads'")
    value = match["value"]
    fixed = int(value) if value and value.isdigit() else value
    _check_value(path, fixed)
    return Argument(name, match["kind"], match["aligned"] is not None, fixed)


def _constants(path: Path, data: Mapping[str, Any] | None) -> dict[str, Any]:
    constants = dict(data or {})
    for value in constants.values():
        _check_value(path, value)
    return constants


def _check_value(path: Path, value: Any) -> None:
    names = Geometry(heads=1, tp=1).names()
    if isinstance(value, str) and not value.startswith("tl.") and value not in names:
        raise SignatureError(f"{path}: unknown value {value!r}; known: {', '.join(sorted(names))}, and tl.<type>")


def _value(value: Any, geometry: Geometry) -> Any:
    return geometry.names().get(value, value) if isinstance(value, str) else value


def _specialise(argument: Argument, geometry: Geometry, specialised: bool) -> tuple[str, str, bool]:
    if not specialised:
        return argument.name, argument.kind, False
    value = _value(argument.value, geometry)
    if value is None:
        return argument.name, argument.kind, argument.divisible
    return (argument.name, "constexpr", False) if value == 1 else (argument.name, argument.kind, value % 16 == 0)
