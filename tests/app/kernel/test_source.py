from __future__ import annotations

import ast
import subprocess
import sys

import pytest

from app.environment import ROOT
from app.kernel.source import parse_source
from app.kernel.upstream import fetch_base

NESTED = """\
import one
try:
    import two
except ImportError:
    def in_except(): ...
else:
    def in_else():
        async def deeper(): ...
    match one:
        case 1:
            def in_case(): ...
with one as x:
    class C:
        from three import four as five
        def in_class(self, a=lambda: 1): ...
"""


@pytest.mark.parametrize("text", [NESTED, fetch_base().text], ids=["made", "SGLang's"])
def test_functions_and_imports_are_found_wherever_a_statement_can_stand(text: str) -> None:
    source = parse_source(text)
    walked = list(ast.walk(source.tree))
    assert list(source.functions) == [n for n in walked if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    bound = {a.asname or a.name for n in walked if isinstance(n, ast.Import | ast.ImportFrom) for a in n.names}
    assert set(source.imports) == bound


def test_made_functions_are_all_of_them() -> None:
    names = {f.name for f in parse_source(NESTED).functions}
    assert names == {"in_except", "in_else", "deeper", "in_case", "in_class"}


@pytest.mark.parametrize("module", ["app.console.changes", "app.gate.named"])
def test_what_few_commands_need_is_not_loaded_by_all(module: str) -> None:
    code = f"import sys, {module}; print(*sorted({{'libcst', 'scipy', 'jinja2', 'matplotlib'}} & set(sys.modules)))"
    asked = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (asked.returncode, asked.stdout) == (0, "\n")
