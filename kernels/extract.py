"""Cutting one Triton kernel, with the functions and constants it needs, out of a module that cannot be imported."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

# These wrap a kernel for launching; compiling one given configuration does not need them.
_LAUNCHERS = ("autotune", "heuristics")


class ExtractError(ValueError):
    """The text holds no such kernel, or is no Python."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a kernel; default is a literal, None when it is no literal.

    specialised: whether Triton compiles anew for a 1 and for a multiple of 16.
    """

    name: str
    constexpr: bool
    has_default: bool
    default: object
    specialised: bool


def extract_kernel(source: str, kernel: str) -> str:
    """The lines of `source` that `kernel` (a top-level function) needs: equal for files that differ elsewhere.

    Kept are top-level functions, assignments and imports that the kernel's code reaches by name; its own autotune and
    heuristics decorators are dropped. Other names are left to Triton and Python to complain about.
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError) as error:
        raise ExtractError(f"the kernel file is not Python: {error}") from error
    homes = {name: node for node in tree.body for name in _bound(node)}
    target = homes.get(kernel)
    if not isinstance(target, ast.FunctionDef):
        known = ", ".join(node.name for node in tree.body if isinstance(node, ast.FunctionDef))
        raise ExtractError(f"no top-level function {kernel!r} in the kernel file; it has: {known or 'none'}")
    lines = re.split(r"\r\n|\r|\n", source)
    kept = {line for node in _reached(target, homes) for line in _lines_of(node)}
    kept |= {line for node in tree.body if _is_future(node) for line in _lines_of(node)}
    return "".join(f"{lines[number - 1]}\n" for number in sorted(kept))


def parameters(source: str, kernel: str) -> list[Parameter]:
    """The parameters of a top-level function, in order."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef) and node.name == kernel:
            arguments = node.args.posonlyargs + node.args.args
            bare = len(arguments) - len(node.args.defaults)
            defaults = [None] * bare + [_literal(default) for default in node.args.defaults]
            plain = _unspecialised(node)
            return [
                Parameter(a.arg, _is_constexpr(a), i >= bare, defaults[i], a.arg not in plain and i not in plain)
                for i, a in enumerate(arguments)
            ]
    raise ExtractError(f"no top-level function {kernel!r} in the kernel file")


def _bound(node: ast.stmt) -> Iterator[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.Import | ast.ImportFrom):
        yield from (alias.asname or alias.name.partition(".")[0] for alias in node.names)
    else:
        # An `if` or `try` around definitions is kept whole when any name it binds is needed.
        for inner in ast.walk(node):
            if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
                yield inner.id
            elif isinstance(inner, ast.FunctionDef | ast.Import | ast.ImportFrom) and inner is not node:
                yield from _bound(inner)


def _reached(target: ast.FunctionDef, homes: dict[str, ast.stmt]) -> list[ast.stmt]:
    seen: dict[int, ast.stmt] = {}
    waiting: list[ast.stmt] = [target]
    while waiting:
        node = waiting.pop()
        if id(node) in seen:
            continue
        seen[id(node)] = node
        parts: list[ast.AST] = [node]
        if isinstance(node, ast.FunctionDef):
            parts = [*node.body, *_kept_decorators(node), node.args, *([node.returns] if node.returns else [])]
        names = {n.id for part in parts for n in ast.walk(part) if isinstance(n, ast.Name)}
        waiting += [homes[name] for name in names & homes.keys()]
    return list(seen.values())


def _lines_of(node: ast.stmt) -> Iterator[int]:
    if isinstance(node, ast.FunctionDef):
        for decorator in _kept_decorators(node):
            yield from range(decorator.lineno, (decorator.end_lineno or decorator.lineno) + 1)
    yield from range(node.lineno, (node.end_lineno or node.lineno) + 1)


def _kept_decorators(node: ast.FunctionDef) -> list[ast.expr]:
    return [d for d in node.decorator_list if _name(d) not in _LAUNCHERS]


def _name(decorator: ast.expr) -> str:
    inner = decorator.func if isinstance(decorator, ast.Call) else decorator
    return inner.attr if isinstance(inner, ast.Attribute) else getattr(inner, "id", "")


def _is_constexpr(argument: ast.arg) -> bool:
    return argument.annotation is not None and "constexpr" in ast.unparse(argument.annotation)


def _unspecialised(node: ast.FunctionDef) -> list[object]:
    named: list[object] = []
    for decorator in node.decorator_list:
        for keyword in decorator.keywords if isinstance(decorator, ast.Call) else ():
            if keyword.arg in ("do_not_specialize", "do_not_specialize_on_alignment"):
                given = _literal(keyword.value)
                named += given if isinstance(given, list | tuple) else []
    return named


def _is_future(node: ast.stmt) -> bool:
    return isinstance(node, ast.ImportFrom) and node.module == "__future__"


def _literal(node: ast.expr) -> object:
    try:
        return ast.literal_eval(node)
    except ValueError:
        return None
