"""Cutting one Triton kernel, with the functions and constants it needs, out of a module that cannot be imported."""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

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
    tree = _parse(source)
    homes = _homes(tree)
    lines = re.split(r"\r\n|\r|\n", source)
    kept = {line for node in _reached([_function(tree, kernel)], homes) for line in _lines_of(node)}
    kept |= {line for node in tree.body if _is_future(node) for line in _lines_of(node)}
    return "".join(f"{lines[number - 1]}\n" for number in sorted(kept))


def parameters(source: str, kernel: str) -> list[Parameter]:
    """The parameters of a top-level function, in order."""
    node = _function(_parse(source), kernel)
    arguments = node.args.posonlyargs + node.args.args
    bare = len(arguments) - len(node.args.defaults)
    defaults = [None] * bare + [_literal(default) for default in node.args.defaults]
    plain = _unspecialised(node)
    return [
        Parameter(a.arg, _is_constexpr(a), i >= bare, defaults[i], a.arg not in plain and i not in plain)
        for i, a in enumerate(arguments)
    ]


def host_code(source: str, kernel: str, companions: Collection[str] = ()) -> str:
    """What of a module the machine code of its kernels does not tell: equal for modules that launch them alike.

    Left out: the bodies of `kernel` and its companions, what these bodies alone reach, the autotuner of `kernel`, and
    what its kernels are called, those that are never launched and functions of kernels too.
    """
    tree = _parse(source)
    homes = _homes(tree)
    launched = {id(_function(tree, name)) for name in (kernel, *companions)}
    device = {id(node) for node in _reached([node for node in tree.body if id(node) in launched], homes)}
    shells = {id(node): _shell(node, kernel) for node in tree.body if id(node) in launched}
    rest = [node for node in tree.body if id(node) not in device]
    host = {id(node) for node in _reached([*rest, *shells.values()], homes, stop=launched)}
    told = [shells.get(id(node), node) for node in tree.body if id(node) in host | launched]
    return _dumped(told, _placeholders(told, kernel, in_order(source, companions)))


def in_order(source: str, kernels: Collection[str]) -> list[str]:
    """Names of top-level functions in the order in which they stand, which does not depend on the names."""
    tree = _parse(source)
    return sorted(kernels, key=lambda name: _function(tree, name).lineno)


def _placeholders(nodes: Sequence[ast.stmt], kernel: str, companions: Sequence[str]) -> dict[str, str]:
    """What each kernel of a module's host code is called in place of its name: its part in it, or its place."""
    others = [node.name for node in nodes if isinstance(node, ast.FunctionDef) and _is_jit(node)]
    return {
        **{name: f"<other {i}>" for i, name in enumerate(others)},
        **{name: f"<companion {i}>" for i, name in enumerate(companions)},
        kernel: "<kernel>",
    }


def _dumped(nodes: Sequence[ast.stmt], names: Mapping[str, str]) -> str:
    """Host code with other names for its kernels; a name that is there as more than a name is left as it stands."""
    text = _renamed(nodes, names)
    # Of an argument, an attribute or a text, a name is no longer this module's own business.
    kept = {name for name in names if repr(name) in text}
    return _renamed(nodes, {name: told for name, told in names.items() if name not in kept}) if kept else text


def _renamed(nodes: Sequence[ast.stmt], names: Mapping[str, str]) -> str:
    copied = copy.deepcopy(nodes)
    for node in (found for each in copied for found in ast.walk(each)):
        if isinstance(node, ast.Name):
            node.id = names.get(node.id, node.id)
        elif isinstance(node, ast.FunctionDef):
            node.name = names.get(node.name, node.name)
    return "\n".join(map(ast.dump, copied))


@lru_cache(maxsize=8)
def _parse(source: str) -> ast.Module:
    # Shared by all callers, so no caller may change it.
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError) as error:
        raise ExtractError(f"the kernel file is not Python: {error}") from error


def _function(tree: ast.Module, kernel: str) -> ast.FunctionDef:
    found = _homes(tree).get(kernel)
    if isinstance(found, ast.FunctionDef):
        return found
    known = ", ".join(node.name for node in tree.body if isinstance(node, ast.FunctionDef))
    raise ExtractError(f"no top-level function {kernel!r} in the kernel file; it has: {known or 'none'}")


def _homes(tree: ast.Module) -> dict[str, ast.stmt]:
    return {name: node for node in tree.body for name in _bound(node)}


def _shell(node: ast.stmt, kernel: str) -> ast.stmt:
    """A kernel without its body: how it is launched."""
    if not isinstance(node, ast.FunctionDef):
        return node
    ways = [d for d in node.decorator_list if node.name != kernel or _name(d) != "autotune"]
    shell = ast.FunctionDef(node.name, node.args, [], ways, node.returns)
    return ast.copy_location(shell, node)


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


def _reached(roots: Iterable[ast.stmt], homes: dict[str, ast.stmt], stop: Collection[int] = ()) -> list[ast.stmt]:
    seen: dict[int, ast.stmt] = {}
    waiting = list(roots)
    while waiting:
        node = waiting.pop()
        if id(node) in seen or id(node) in stop:
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


def _is_jit(node: ast.FunctionDef) -> bool:
    return any(_name(decorator) == "jit" for decorator in node.decorator_list)


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
