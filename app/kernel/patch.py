"""From a pristine kernel file and a variant to the file that runs: nothing but what the variant names is changed."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from app.environment import ROOT
from app.errors import ConstantMissingError, KernelMissingError, PatchError, UnknownBaseError
from app.kernel.autotune import find_autotune, read_configs, read_key
from app.kernel.replacement import read_replacement
from app.kernel.source import KernelSource, check_compiles, find_kernel, module_names, parse_source
from app.kernel.upstream import Base, decode, sha256
from app.kernel.variant import Change, Variant

__all__ = ["PatchedKernel", "difference", "patch_kernel", "read_configs", "read_key", "rewrite"]


@dataclass(frozen=True, slots=True)
class PatchedKernel:
    """The kernel file that a variant runs. diff: unified, from the pristine file; unchanged: equal to it.

    edits: unified, from the replacement file where the variant has one, so that the change in it shows; else diff.
    """

    text: str
    sha256: str
    base_sha256: str
    diff: str
    edits: str
    module: str
    relative_path: str
    kernel: str | None
    unchanged: bool


def patch_kernel(base: Base, variant: Variant, root: Path = ROOT) -> PatchedKernel:
    """The file that a variant makes of a pristine one; a PatchError of its own kind for each thing that cannot be.

    root: the repository, in which the variant's replacement file lies.
    """
    if (found := sha256(base.text.encode("utf-8", "surrogatepass"))) != base.sha256:
        raise UnknownBaseError(
            f"{base.relative_path} has SHA-256 {found}, pristine is {base.sha256}; start from the pristine file"
        )
    source, path = _source(base, variant, root)
    kernel = variant.target.kernel if variant.target else base.kernel
    try:
        text = rewrite(source, variant.target.kernel, variant.change) if variant.target else source
        data = text.encode("utf-8")
        check_compiles(data, path)
    except PatchError as error:
        raise type(error)(f"{variant.name} cannot change {path}: {error}") from error
    return PatchedKernel(
        text=text,
        sha256=sha256(data),
        base_sha256=base.sha256,
        diff=difference(base.text, text, base.relative_path),
        edits=difference(source, text, path),
        module=base.module,
        relative_path=base.relative_path,
        kernel=kernel,
        unchanged=text == base.text,
    )


def rewrite(text: str, kernel: str, change: Change) -> str:
    """A kernel file with a kernel's configs, key and the file's constants as `change` has them; else byte for byte."""
    source = parse_source(text)
    edits = [_constant_edit(source, name, value) for name, value in change.constants.items()]
    if change.configs is None and change.key is None:
        find_kernel(source, kernel)
    else:
        autotune = find_autotune(source, kernel)
        edits.append((source.span(autotune.call), autotune.rewritten(change.configs, change.key)))
    data = source.data
    for (start, end), new in sorted(edits, reverse=True):
        data = data[:start] + new.encode("utf-8") + data[end:]
    return data.decode("utf-8")


def difference(old: str, new: str, path: str, context: int = 3) -> str:
    """A unified diff that `patch -p1` applies; empty for equal texts."""
    # Split at \n alone: any other rule would show, and lose, a carriage return or form feed as a line end.
    lines = difflib.unified_diff(_lines(old), _lines(new), f"a/{path}", f"b/{path}", n=context)
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


def _source(base: Base, variant: Variant, root: Path) -> tuple[str, str]:
    if variant.target and variant.target.module != base.module:
        raise KernelMissingError(f"{variant.name} changes {variant.target.module}; this base is {base.module}")
    if variant.change.file is None:
        return base.text, base.relative_path
    path = variant.change.file.as_posix()
    return decode(read_replacement(root, variant.change.file), path), path


def _lines(text: str) -> list[str]:
    lines = text.split("\n")
    return [f"{line}\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])


def _constant_edit(source: KernelSource, name: str, value: object) -> tuple[tuple[int, int], str]:
    places = [node for node in module_names(source.tree.body) if node.id == name]
    if len(places) != 1:
        known = ", ".join(sorted(_literals(source))) or "none"
        found = (
            f"{name} is assigned {len(places)} times at module level, not once" if places else f"{name} is not there"
        )
        raise ConstantMissingError(f"{found}; literals at module level: {known}")
    if name not in (literals := _literals(source)):
        raise ConstantMissingError(f"line {places[0].lineno}: {name} is not a plain literal, so it is not rewritten")
    node = literals[name]
    same = repr(ast.literal_eval(node)) == repr(value)
    return source.span(node), source.segment(node) if same else repr(value)


def _literals(source: KernelSource) -> Mapping[str, ast.expr]:
    literals: dict[str, ast.expr] = {}
    for statement in source.tree.body:
        if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            target: ast.expr = statement.targets[0]
        elif isinstance(statement, ast.AnnAssign):
            target = statement.target
        else:
            continue
        if isinstance(target, ast.Name) and statement.value is not None and _is_literal(statement.value):
            literals[target.id] = statement.value
    return literals


def _is_literal(node: ast.expr) -> bool:
    try:
        # Written out again too: Python reads integers that it will not write.
        repr(ast.literal_eval(node))
    except (ValueError, TypeError, RecursionError, MemoryError):
        return False
    return True
