"""A kernel file as bytes and syntax tree: where its functions, decorators and names stand, to the byte."""

from __future__ import annotations

import ast
import functools
import io
import re
import threading
import tokenize
import warnings
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import cast

from app.errors import EncodingUnknownError, KernelAmbiguousError, KernelMissingError, PatchError

_LINE_END = re.compile(rb"\r\n|\r|\n")
_WARNINGS = threading.Lock()
_UTF8_BOM = b"\xef\xbb\xbf"
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class KernelSource:
    """A parsed file. data: its bytes; starts: offset in `data` of each line; functions: all of them, at any depth;
    imports: local name -> full names."""

    data: bytes
    tree: ast.Module
    starts: tuple[int, ...]
    functions: tuple[Function, ...]
    imports: dict[str, frozenset[str]]

    def span(self, node: ast.expr) -> tuple[int, int]:
        """First byte of an expression and the one after its last; enclosing parentheses are not part of it."""
        if node.end_lineno is None or node.end_col_offset is None:
            raise PatchError(f"line {node.lineno}: the parser gives no end for this expression")
        return self.starts[node.lineno - 1] + node.col_offset, self.starts[node.end_lineno - 1] + node.end_col_offset

    def segment(self, node: ast.expr) -> str:
        """The text of an expression, byte for byte."""
        start, end = self.span(node)
        return self.data[start:end].decode("utf-8")

    def line(self, number: int) -> str:
        """The text of a 1-based line with its line end."""
        end = self.starts[number] if number < len(self.starts) else len(self.data)
        return self.data[self.starts[number - 1] : end].decode("utf-8")

    def full_names(self, node: ast.expr) -> frozenset[str]:
        """What a dotted name may stand for by the file's imports: {'triton.autotune'} for `tr.autotune`."""
        tail: list[str] = []
        while isinstance(node, ast.Attribute):
            tail.insert(0, node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return frozenset()
        return frozenset(".".join([root, *tail]) for root in self.imports.get(node.id, ()))


# A variant and its control often change one file.
@functools.lru_cache(maxsize=2)
def parse_source(text: str) -> KernelSource:
    """The file behind a text; EncodingUnknownError when it is not UTF-8, PatchError when it is not Python."""
    try:
        data = text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise EncodingUnknownError(f"the text holds {text[error.start]!r}, which UTF-8 cannot carry") from error
    tree = _parse(data)
    offset = len(_UTF8_BOM) if data.startswith(_UTF8_BOM) else 0
    starts = (offset, *(match.end() for match in _LINE_END.finditer(data)))
    nodes = [node for node in _statements(tree) if isinstance(node, Function | ast.Import | ast.ImportFrom)]
    functions = tuple(node for node in nodes if isinstance(node, Function))
    return KernelSource(data, tree, starts, functions, _imports(nodes))


def find_kernel(source: KernelSource, name: str) -> Function:
    """The one function of that name, at any depth."""
    found = [function for function in source.functions if function.name == name]
    if not found:
        jitted = sorted({f.name for f in source.functions if any(_is_jit(source, d) for d in f.decorator_list)})
        raise KernelMissingError(f"no function {name!r}; the file's Triton kernels: {', '.join(jitted) or 'none'}")
    if len(found) > 1:
        lines = ", ".join(str(function.lineno) for function in found)
        raise KernelAmbiguousError(f"{len(found)} functions are named {name!r} (lines {lines}); one is needed")
    return found[0]


def arguments(function: Function) -> tuple[str, ...]:
    """The names of a function's arguments, in order."""
    args = function.args
    return tuple(arg.arg for arg in [*args.posonlyargs, *args.args, *args.kwonlyargs])


def module_names(body: list[ast.stmt]) -> Iterator[ast.Name]:
    """Every name bound at module level, also inside its if, try, with and for statements."""
    waiting: list[ast.AST] = list(body)
    while waiting:
        node = waiting.pop(0)
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            yield node
        if not isinstance(node, Function | ast.ClassDef | ast.Lambda):
            waiting.extend(ast.iter_child_nodes(node))


def check_compiles(data: bytes, path: str) -> None:
    """PatchError when Python cannot compile the file."""
    _compiled(data, path, 0)


def _compiled(data: bytes, path: str, flags: int) -> object:
    """The code of a file, or its tree; path is empty where the caller names the file."""
    try:
        # The compiler warns about escapes in other people's strings; the filter that silences it is process-wide.
        with _WARNINGS, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return compile(data, PurePosixPath(path).name or "<kernel>", "exec", flags, dont_inherit=True)
    except SyntaxError as error:
        line = error.lineno
        where = (f"{path}:{line}" if path else f"line {line}") if line else path or "the file"
        raise PatchError(f"{where} does not compile: {error.msg}") from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise PatchError(f"{path or 'the file'} does not compile: {type(error).__name__} {error}") from error


def _parse(data: bytes) -> ast.Module:
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
    except SyntaxError as error:
        raise EncodingUnknownError(f"the file declares an encoding that Python refuses: {error}") from error
    if encoding not in ("utf-8", "utf-8-sig"):
        raise EncodingUnknownError(f"the file declares the encoding {encoding}; save it as UTF-8")
    return cast(ast.Module, _compiled(data, "", ast.PyCF_ONLY_AST))


def _statements(tree: ast.Module) -> Iterator[ast.AST]:
    # What ast.walk gives, in its order, without the expressions, of which a file is mostly made.
    waiting = deque[ast.AST]([tree])
    while waiting:
        yield (node := waiting.popleft())
        waiting.extend(
            n for n in ast.iter_child_nodes(node) if isinstance(n, ast.stmt | ast.excepthandler | ast.match_case)
        )


def _imports(nodes: Sequence[ast.AST]) -> dict[str, frozenset[str]]:
    names: dict[str, frozenset[str]] = {}
    for node in nodes:
        if isinstance(node, ast.Import):
            pairs = [(a.asname, a.name) if a.asname else (a.name.split(".")[0],) * 2 for a in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            pairs = [(a.asname or a.name, f"{node.module}.{a.name}") for a in node.names]
        else:
            continue
        for local, full in pairs:
            names[local] = names.get(local, frozenset()) | {full}
    return names


def _is_jit(source: KernelSource, decorator: ast.expr) -> bool:
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    return any(name.startswith("triton.") and name.endswith(".jit") for name in source.full_names(called))
