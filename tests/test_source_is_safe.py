"""What the product's own source may not do: unpickle, evaluate, go through a shell, load YAML that builds objects."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("app", "kernels", "loadtest")
FILES = [*sorted(p for folder in FOLDERS for p in (ROOT / folder).rglob("*.py")), ROOT / "tasks.py"]
UNSAFE_MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "shelve", "marshal", "joblib"}
UNSAFE_CALLS = {
    "eval",
    "exec",
    "__import__",
    "os.system",
    "os.popen",
    "yaml.load",
    "yaml.unsafe_load",
    "yaml.full_load",
}
SAFE_LOADERS = {"yaml.SafeLoader", "yaml.CSafeLoader"}
# The patched kernel file, run in a process that compiles it: the very file that the server imports.
ALLOWED = {("kernels/prebuild.py", "exec")}


def faults(text: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (f"import {a.name}" for a in node.names if a.name.split(".")[0] in UNSAFE_MODULES)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in UNSAFE_MODULES:
            yield f"import {node.module}"
        elif isinstance(node, ast.Call):
            yield from _call_faults(node)


def _call_faults(call: ast.Call) -> Iterator[str]:
    name = ast.unparse(call.func)
    options = {k.arg: ast.unparse(k.value) for k in call.keywords}
    if name in UNSAFE_CALLS:
        yield name
    if options.get("shell", "False") != "False":
        yield "shell=True"
    if name in ("yaml.parse", "yaml.compose") and options.get("Loader") not in SAFE_LOADERS:
        yield f"{name} without a safe loader"
    if options.get("allow_pickle", "False") != "False" or options.get("weights_only") == "False":
        yield "unpickling"
    if options.get("verify") == "False":
        yield "certificates unchecked"


def test_the_source_does_nothing_unsafe_but_what_is_excepted_by_name() -> None:
    found = {(p.relative_to(ROOT).as_posix(), f) for p in FILES for f in faults(p.read_text(encoding="utf-8"))}
    assert found == ALLOWED


def test_no_page_takes_words_as_markup() -> None:
    pages = [*(ROOT / "app" / "report" / "templates").iterdir(), *(ROOT / "loadtest" / "webui" / "templates").iterdir()]
    ways = (
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function",
        r"\| *safe\b|autoescape false",
    )
    markup = re.compile("|".join(ways))
    assert len(pages) >= 3
    assert [(p.name, m[0]) for p in pages if (m := markup.search(p.read_text(encoding="utf-8")))] == []


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("import pickle", "import pickle"),
        ("from marshal import loads", "import marshal"),
        ("eval('1')", "eval"),
        ("subprocess.run('x', shell=True)", "shell=True"),
        ("yaml.load(x, Loader=yaml.Loader)", "yaml.load"),
        ("yaml.compose(x)", "yaml.compose without a safe loader"),
        ("np.load(x, allow_pickle=True)", "unpickling"),
        ("requests.get(x, verify=False)", "certificates unchecked"),
    ],
)
def test_each_unsafe_form_is_found(text: str, fault: str) -> None:
    assert list(faults(text)) == [fault]
