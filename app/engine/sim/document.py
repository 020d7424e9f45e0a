"""YAML read strictly: every value is asked for by name, and what is wrong or left over is named with its line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import yaml

from app.errors import UsageError


class Document:
    """A mapping of a YAML file with the line of every key; `done` refuses keys nobody asked for."""

    def __init__(self, path: Path, node: yaml.MappingNode, name: str) -> None:
        self.path, self.name, self._node = path, name, node
        self._values: dict[str, yaml.Node] = {}
        self._asked: set[str] = set()
        for key, value in node.value:
            if key.value in self._values:
                self._fail(key, f"{key.value!r} is given twice in {name}")
            self._values[key.value] = value

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def section(self, key: str) -> Document:
        """The mapping under key."""
        node = self._take(key)
        if not isinstance(node, yaml.MappingNode):
            self._fail(node, f"{self._full(key)} must be a mapping")
        return Document(self.path, node, self._full(key))

    def text(self, key: str, choices: tuple[str, ...] = ()) -> str:
        """A non-empty string, one of choices when given."""
        value = self.value(key)
        if not isinstance(value, str) or not value or (choices and value not in choices):
            self.refuse(key, f"must be {'one of ' + ', '.join(choices) if choices else 'text'}, not {value!r}")
        return value

    def number(self, key: str, low: float, high: float) -> float:
        """A number within low..high."""
        value = self.value(key)
        if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
            self.refuse(key, f"must be a number from {low:g} to {high:g}, not {value!r}")
        return float(value)

    def integer(self, key: str, low: int, high: int) -> int:
        """A whole number within low..high."""
        value = self.number(key, low, high)
        if value != int(value):
            self.refuse(key, f"must be a whole number, not {value!r}")
        return int(value)

    def numbers(self, key: str, low: float, high: float) -> list[float]:
        """A list of numbers within low..high."""
        value = self.value(key)
        items = value if isinstance(value, list) else [value]
        if not items or any(
            isinstance(x, bool) or not isinstance(x, int | float) or not low <= x <= high for x in items
        ):
            self.refuse(key, f"must be numbers from {low:g} to {high:g}, not {value!r}")
        return [float(x) for x in items]

    def flag(self, key: str) -> bool:
        """true or false."""
        value = self.value(key)
        if not isinstance(value, bool):
            self.refuse(key, f"must be true or false, not {value!r}")
        return value

    def value(self, key: str) -> Any:
        """The plain value under key."""
        return yaml.SafeLoader("").construct_object(self._take(key), deep=True)  # type: ignore[no-untyped-call]

    def refuse(self, key: str, what: str) -> NoReturn:
        """Raises UsageError at the key's line."""
        self._fail(self._values.get(key, self._node), f"{self._full(key)} {what}")

    def done(self, known: tuple[str, ...] = ()) -> None:
        """Refuses the first key that was not asked for."""
        for key in self._values:
            if key not in self._asked:
                self.refuse(key, f"is not known here; known: {', '.join(sorted({*self._asked, *known}))}")

    def _take(self, key: str) -> yaml.Node:
        self._asked.add(key)
        if key not in self._values:
            self._fail(self._node, f"{self._full(key)} is missing")
        return self._values[key]

    def _full(self, key: str) -> str:
        return f"{self.name}.{key}" if self.name else key

    def _fail(self, node: yaml.Node, what: str) -> NoReturn:
        raise UsageError(f"{self.path}:{node.start_mark.line + 1}: {what}")


def read_document(path: Path) -> Document:
    """Parses a YAML (or JSON) file that holds a mapping; UsageError names path and line."""
    try:
        node = yaml.compose(path.read_text(), Loader=yaml.SafeLoader)
    except OSError as e:
        raise UsageError(f"{path}: cannot be read ({e.strerror})") from e
    except (yaml.YAMLError, UnicodeDecodeError) as e:
        mark = getattr(e, "problem_mark", None)
        where = f":{mark.line + 1}" if mark else ""
        raise UsageError(f"{path}{where}: not YAML ({getattr(e, 'problem', None) or e})") from e
    if not isinstance(node, yaml.MappingNode):
        raise UsageError(f"{path}:1: must hold a mapping")
    return Document(path, node, "")
