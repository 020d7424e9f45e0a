"""The flags of SGLang's server as its wheels' own source declares them; nothing of SGLang is imported."""

from __future__ import annotations

import ast
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from app.kernel.upstream import default_cache, fetch_wheel, pinned

RELEASES = ("0.5.17", "0.5.23")


@dataclass(frozen=True)
class Flag:
    """One flag; kind: its annotation, such as bool or Optional[int], or store_true's bool."""

    kind: str
    choices: tuple[str, ...]


@lru_cache
def flags(release: str) -> dict[str, Flag]:
    """By name. Fields that are kept off the command line are left out."""
    with zipfile.ZipFile(fetch_wheel(pinned(release), default_cache())) as wheel:
        files = [n for n in wheel.namelist() if n == "sglang/srt/server_args.py" or "/arg_groups/fields/" in n]
        nodes = [node for n in files if n.endswith(".py") for node in ast.walk(ast.parse(wheel.read(n)))]
    found = {flag: kind for node in nodes for flag, kind in (*_field(node), *_added(node))}
    # The one flag that is no field: it is expanded before parsing.
    return found | {"--config": Flag("str", ())}


@lru_cache
def client_source(release: str) -> str:
    """The source of the wheel's bench client."""
    with zipfile.ZipFile(fetch_wheel(pinned(release), default_cache())) as wheel:
        return wheel.read("sglang/benchmark/serving.py").decode()


def client_flags(release: str) -> dict[str, Flag]:
    """The bench client's flags by name."""
    return dict(found for node in ast.walk(ast.parse(client_source(release))) for found in _added(node))


def values(argv: Sequence[str]) -> list[tuple[str, list[str]]]:
    """Each flag with the words that follow it."""
    starts = [at for at, word in enumerate(argv) if word.startswith("--")]
    ends = [*starts[1:], len(argv)]
    return [(argv[a], list(argv[a + 1 : b])) for a, b in zip(starts, ends, strict=True)]


def check_arguments(release: str, argv: Sequence[str]) -> None:
    """AssertionError for a flag that the release lacks, or one with a value that it does not take."""
    known = flags(release)
    for flag, given in values(argv):
        assert flag in known, f"{flag} is unknown to SGLang {release}"
        kind = known[flag].kind
        assert (not given) == (kind == "bool"), f"{flag} {given}"
        assert len(given) < 2 or "ist[" in kind, f"{flag} {given}"
        assert not known[flag].choices or set(given) <= set(known[flag].choices), f"{flag} {given}"
        assert "int" not in kind or all(word.isdigit() for word in given), f"{flag} {given}"


def _field(node: ast.AST) -> Iterator[tuple[str, Flag]]:
    if not (isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)):
        return
    text = ast.unparse(node.annotation)
    if not text.startswith("A[") or "no_cli=True" in text:
        return
    literal = ast.unparse(node.annotation.slice.elts[0])  # type: ignore[attr-defined]
    choices = ast.literal_eval(literal.removeprefix("Literal")) if literal.startswith("Literal[") else ()
    yield f"--{node.target.id.replace('_', '-')}", Flag(literal, tuple(choices))


def _added(node: ast.AST) -> Iterator[tuple[str, Flag]]:
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "add_argument"):
        return
    options = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
    bare = "true" in options.get("action", "").lower() or options.get("nargs") == "0"
    for name in node.args:
        if isinstance(name, ast.Constant) and str(name.value).startswith("--"):
            yield str(name.value), Flag("bool" if bare else options.get("type", "str"), ())
