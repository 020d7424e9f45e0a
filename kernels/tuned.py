"""Tables of launch choices in a kernel's file, made offline and used instead of the autotune list."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from kernels.geometry import Geometry

LAUNCH = ("num_warps", "num_stages")


class TableError(ValueError):
    """A table of launch choices cannot be read."""


@dataclass(frozen=True, slots=True)
class Table:
    """Where a kernel's file keeps its choices: a module-level literal {arch: [row, ...]}, rows of bounds and settings.

    bounds: the problem's sizes that a row's first entries limit (0: no limit), the first row that holds ruling.
    settings: what the further entries set, the launch's own (num_warps, num_stages, maxnreg) among them; "_" sets
    nothing that the compiler sees. A row may end early. words: what a setting given by a word means in constants.
    """

    constant: str
    bounds: tuple[str, ...]
    settings: tuple[str, ...]
    words: Mapping[str, Mapping[str, Mapping[str, bool | int]]] = field(default_factory=dict)

    def constants(self, settings: Mapping[str, Any]) -> dict[str, int | bool | str]:
        """What the settings of a row mean for the compiler; KeyError for a word without a meaning."""
        constants: dict[str, int | bool | str] = {}
        for name, value in settings.items():
            if name in self.words:
                constants |= self.words[name][value]
            # A limit of 0 registers means no limit.
            elif name not in (*LAUNCH, "_") and (name, value) != ("maxnreg", 0):
                constants[name] = value
        return constants


@dataclass(frozen=True, slots=True)
class Choice:
    """One configuration of a table. rows: those that choose it, by number from 1, with the problems they are for."""

    constants: Mapping[str, int | bool | str]
    num_warps: int
    num_stages: int
    rows: tuple[str, ...] = field(default=(), compare=False)


def read_choices(source: str, table: Table, arch: int, geometry: Geometry) -> tuple[list[Choice], bool]:
    """The configurations that the table of `source` can choose for an arch, and whether they cover every problem.

    Rows that the geometry's heads can never reach are left out. TableError when the literal is missing or has odd rows.
    """
    rows = _literal(source, table.constant).get(str(arch), [])
    choices: list[Choice] = []
    for number, row in enumerate(rows, 1):
        if not isinstance(row, list | tuple) or not all(isinstance(entry, int | str) for entry in row):
            raise TableError(f"{table.constant}[{arch!r}] has the row {row!r}; rows are lists of numbers and names")
        bounds = dict(zip(table.bounds, row, strict=False))
        if 0 < bounds.get("heads", 0) < geometry.local_heads:
            continue
        settings = dict(zip(table.settings, row[len(table.bounds) :], strict=False))
        if missing := [name for name in LAUNCH if name not in settings]:
            raise TableError(f"{table.constant}[{arch!r}] has the row {row!r} without {', '.join(missing)}")
        try:
            constants = table.constants(settings)
        except KeyError as word:
            raise TableError(f"{table.constant}[{arch!r}] has the row {row!r} with the unknown word {word}") from word
        choice = Choice(constants, settings["num_warps"], settings["num_stages"], (_row(number, bounds),))
        earlier = next((twin for twin in choices if twin == choice), None)
        if earlier is None:
            choices.append(choice)
        else:
            choices[choices.index(earlier)] = replace(earlier, rows=earlier.rows + choice.rows)
        if not any(bound for name, bound in bounds.items() if name != "heads"):
            return choices, True
    return choices, False


def _row(number: int, bounds: Mapping[str, Any]) -> str:
    limits = ", ".join(f"{name} to {bound}" for name, bound in bounds.items() if bound)
    return f"{number} ({limits or 'any problem'})"


def _literal(source: str, name: str) -> dict[str, list[object]]:
    for node in ast.parse(source).body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        if isinstance(node, ast.AnnAssign):
            targets = [node.target]
        if isinstance(node, ast.Assign | ast.AnnAssign) and name in [getattr(target, "id", "") for target in targets]:
            return _mapping(name, node.value)
    raise TableError(f"no module-level {name}")


def _mapping(name: str, node: ast.expr | None) -> dict[str, list[object]]:
    try:
        value = ast.literal_eval(node) if node else None
    except ValueError as error:
        raise TableError(f"{name} is no literal") from error
    if not isinstance(value, dict):
        raise TableError(f"{name} is no mapping of arch to rows")
    return value
