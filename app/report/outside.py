"""Records of a run folder as a report may show them: every text on one line, without what steers a terminal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from app.errors import RecordsError, printable
from app.records import read_json


def shown(value: Any) -> Any:
    """Plain data with control and unpaired characters in its texts, keys too, as escapes."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, dict):
        return {printable(str(key)): shown(inner) for key, inner in value.items()}
    return [shown(inner) for inner in value] if isinstance(value, list | tuple) else value


def read_shown(path: Path) -> dict[str, Any]:
    """The JSON object in a file, ready to be shown; RecordsError when it holds none."""
    found = read_json(path)
    if not isinstance(found, dict):
        raise RecordsError(f"{path} holds no JSON object; it is not one of the lab's whole files")
    return dict(shown(found))
