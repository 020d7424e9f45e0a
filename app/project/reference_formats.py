"""The part of docs/reference.md on files: their version numbers and fields, read from the code that writes them."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator
from dataclasses import Field, fields
from typing import Any

from app.campaign import runs
from app.console import campaigns as console
from app.console import operations
from app.deployment import stable
from app.doctor import examination
from app.gate import report as gate_report
from app.image import build as image
from app.image import identity
from app.report import export
from app.report.markdown import table
from loadtest import order, plan
from loadtest.cells import Cell
from loadtest.client import rows
from loadtest.judge import verdict

VERSIONS: tuple[tuple[str, int, str], ...] = (
    ("`plan.json`", plan.SCHEMA, "what is compared, by which rules"),
    ("`manifest.json`", runs.MANIFEST_SCHEMA, "what must be equal for everything compared"),
    ("`gate.json`, `check --json`", gate_report.SCHEMA, "what compiling told"),
    ("`block.json`", runs.BLOCK_SCHEMA, "the end of a block"),
    ("`order.json`", order.SCHEMA, "what the load driver is told"),
    ("`rows.parquet`, `load.json`", rows.SCHEMA, "requests, levels and guards of a start"),
    ("`verdict.json`", verdict.SCHEMA, "the verdict"),
    ("`summary.json`, `report --json`", export.SCHEMA, "the report's figures"),
    ("`identity.json`", identity.SCHEMA, "what an image says it is"),
    ("`.decode-ab/locks/*.json`", image.LOCK_SCHEMA, "what was built"),
    ("`.decode-ab/stable-*.json`", stable.SCHEMA, "history of promotions"),
    ("`doctor --json`", examination.SCHEMA, "findings about this machine"),
    ("`images --json`, `verify --json`", operations.SCHEMA, "images; proof of what runs"),
    ("`ledger --json`", console.SCHEMA, "a ledger entry, as text and by variant"),
)
RECORDS: tuple[tuple[str, type], ...] = (
    ("plan.json", plan.Plan),
    ("order.json", order.StartOrder),
    ("rows.parquet", rows.Row),
    ("cells.csv", Cell),
)


def formats() -> Iterator[str]:
    """Markdown of the section, in pieces."""
    yield "## File formats\n\nWhat each file is for: [files of a campaign](formats.md).\n"
    yield table(("file", "version", "holds"), ((name, str(number), what) for name, number, what in VERSIONS)) + "\n"
    for name, kind in RECORDS:
        yield f"### {name}\n\n{inspect.cleandoc(kind.__doc__ or '')}\n"
        yield table(("field", "type"), ((f"`{f.name}`", _type(f)) for f in fields(kind))) + "\n"
    yield f"### levels.csv\n\n{', '.join(f'`{column}`' for column in export.COLUMNS)}\n"
    yield from _verdict(json.loads(verdict.SCHEMA_FILE.read_text(encoding="utf-8")))


def _verdict(schema: dict[str, Any]) -> Iterator[str]:
    yield f"### verdict.json\n\n{schema['description']} The schema is `loadtest/judge/schema/verdict.schema.json`.\n"
    for name, part in (("verdict", schema), *schema["$defs"].items()):
        yield f"#### {name}\n" + (
            f"\n{part['description']}\n" if part.get("description") and part is not schema else ""
        )
        said = ((f"`{key}`", _json_type(form), form.get("description", "")) for key, form in part["properties"].items())
        yield table(("field", "type", "meaning"), said) + "\n"


def _json_type(form: dict[str, Any]) -> str:
    """A property's type in words: a name of another table stands for its object."""
    if "$ref" in form:
        return str(form["$ref"]).rpartition("/")[2]
    if "enum" in form:
        return " or ".join(map(str, form["enum"]))
    if "const" in form:
        return str(form["const"])
    if "anyOf" in form:
        return " or ".join(map(_json_type, form["anyOf"]))
    kind = form["type"]
    if kind == "array":
        return f"list of {_json_type(form['items'])}"
    return " or ".join(kind) if isinstance(kind, list) else str(kind)


def _type(field: Field[Any]) -> str:
    # Annotations are text here; a bar would end the table's cell.
    return f"`{field.type}`".replace(" | ", "` or `")
