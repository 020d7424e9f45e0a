"""Strict reading of small YAML files: every refusal names the file, the line and what is allowed there."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from app.errors import VariantError
from app.small_file import UnreadableError, read_small

LIMIT_BYTES = 64 * 1024
LIMIT_DEPTH = 16
_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,17}")
_TAG = "tag:yaml.org,2002:"


@dataclass(frozen=True, slots=True)
class Entry:
    """A value in a YAML file that knows where it stands; every method raises VariantError at its line."""

    path: Path
    node: yaml.Node
    label: str

    @property
    def line(self) -> int:
        """1-based line on which the value starts."""
        return int(self.node.start_mark.line) + 1

    def refusal(self, what: str) -> VariantError:
        """The error to raise about this value."""
        return VariantError(self.path, self.line, f"{self.label}: {what}" if self.label else what)

    def mapping(self, required: Collection[str], optional: Collection[str] = ()) -> Mapping[str, Entry]:
        """The values of a mapping that has all required keys and no key outside both lists."""
        found: dict[str, Entry] = {}
        for key, value in self.pairs():
            name = key.text()
            if name not in (*required, *optional):
                raise key.refusal(f"unknown key {name!r}; allowed: {', '.join([*required, *optional])}")
            found[name] = value
        if missing := [name for name in required if name not in found]:
            raise self.refusal(f"missing {', '.join(missing)}")
        return found

    def pairs(self) -> list[tuple[Entry, Entry]]:
        """Keys and values of a mapping, in order; a repeated key is refused."""
        if not isinstance(self.node, yaml.MappingNode):
            raise self.refusal(f"must be a mapping, not {self._shown()}")
        seen: set[str] = set()
        pairs: list[tuple[Entry, Entry]] = []
        for key_node, value_node in self.node.value:
            key = Entry(self.path, key_node, self.label)
            if not isinstance(key_node, yaml.ScalarNode):
                raise key.refusal("a key must be a plain word or number")
            if key_node.value in seen:
                raise key.refusal(f"key {key_node.value!r} is given twice")
            seen.add(key_node.value)
            pairs.append((key, Entry(self.path, value_node, key_node.value)))
        return pairs

    def items(self) -> list[Entry]:
        """The values of a list that is not empty."""
        if not isinstance(self.node, yaml.SequenceNode):
            raise self.refusal(f"must be a list, not {self._shown()}")
        if not self.node.value:
            raise self.refusal("must not be an empty list; leave the key out instead")
        return [Entry(self.path, node, self.label) for node in self.node.value]

    def text(self, pattern: str = r"(?s)\s*\S.*", allowed: str = "a text") -> str:
        """A string that matches `pattern` as a whole; `allowed` says what would."""
        if not self._is("str") or not re.fullmatch(pattern, self.node.value):
            raise self.refusal(f"must be {allowed}, not {self._shown()}")
        return str(self.node.value)

    def choice(self, allowed: Collection[str]) -> str:
        """One of the allowed words."""
        if not self._is("str") or self.node.value not in allowed:
            raise self.refusal(f"must be one of {', '.join(allowed)}; not {self._shown()}")
        return str(self.node.value)

    def integer(self, allowed: str = "a whole number") -> int:
        """A decimal integer: YAML's octal, sexagesimal and underscored spellings are refused."""
        if not self._is("int") or not _INTEGER.fullmatch(self.node.value):
            raise self.refusal(f"must be {allowed}, not {self._shown()}")
        return int(self.node.value)

    def number(self) -> float:
        """A finite decimal number."""
        if self._is("int"):
            return float(self.integer())
        if not self._is("float") or "_" in self.node.value or ":" in self.node.value:
            raise self.refusal(f"must be a number, not {self._shown()}")
        value = float(self.node.value) if self.node.value.strip("+-.").lower() not in ("inf", "nan") else math.inf
        if not math.isfinite(value):
            raise self.refusal(f"must be a finite number, not {self._shown()}")
        return value

    def literal(self) -> object:
        """Plain data: None, bool, int, float, str, and lists and mappings of them."""
        if isinstance(self.node, yaml.MappingNode):
            return {key.scalar(): value.literal() for key, value in self.pairs()}
        if isinstance(self.node, yaml.SequenceNode):
            return [Entry(self.path, node, self.label).literal() for node in self.node.value]
        return self.scalar()

    def scalar(self) -> bool | int | float | str | None:
        """None, bool, int, float or str."""
        if self._is("null"):
            return None
        if self._is("bool"):
            return str(self.node.value).lower() in ("true", "yes", "on")
        if self._is("int"):
            return self.integer()
        if self._is("float"):
            return self.number()
        if self._is("str"):
            return str(self.node.value)
        raise self.refusal(f"must be a number, a text, true, false or null; not {self._shown()}")

    def _is(self, kind: str) -> bool:
        return isinstance(self.node, yaml.ScalarNode) and self.node.tag == _TAG + kind

    def _shown(self) -> str:
        if isinstance(self.node, yaml.ScalarNode):
            shown = self.node.value if len(self.node.value) <= 60 else self.node.value[:57] + "..."
            return f"{shown!r}" + ("" if self._is("str") else f" ({self.node.tag.removeprefix(_TAG)})")
        return "a mapping" if isinstance(self.node, yaml.MappingNode) else "a list"


def read_yaml(path: Path, shown_as: Path | None = None) -> Entry:
    """The one document in a UTF-8 file of at most 64 KiB, without tags, anchors or aliases.

    shown_as: the path that messages name, when it is not `path` itself.
    """
    shown = shown_as or path
    try:
        data = read_small(path, LIMIT_BYTES)
    except UnreadableError as error:
        raise VariantError(shown, None, str(error)) from error
    try:
        text = data.decode("utf-8")
        _check_events(shown, text)
        node = _compose(text)
        if node is None:
            raise VariantError(shown, None, "is empty")
    except UnicodeDecodeError as error:
        raise VariantError(shown, data.count(b"\n", 0, error.start) + 1, "is not UTF-8") from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise VariantError(shown, mark.line + 1 if mark else None, f"is not YAML: {error.problem}") from error
    except yaml.YAMLError as error:
        raise VariantError(shown, None, f"is not YAML: {' '.join(str(error).split())}") from error
    return Entry(shown, node, "")


# libyaml where PyYAML was built with it: a tenth of the time, which every command pays that names a variant.
def _compose(text: str) -> yaml.Node | None:
    if yaml.__with_libyaml__:
        return yaml.compose(text, Loader=yaml.CSafeLoader)
    return yaml.compose(text, Loader=yaml.SafeLoader)


def _events(text: str) -> Iterable[yaml.Event]:
    if yaml.__with_libyaml__:
        return yaml.parse(text, Loader=yaml.CSafeLoader)
    return yaml.parse(text, Loader=yaml.SafeLoader)


def _check_events(path: Path, text: str) -> None:
    # On the event stream, before a tree is built: the tree builder recurses and expands.
    depth = documents = 0
    for event in _events(text):
        line = event.start_mark.line + 1 if event.start_mark else None
        documents += isinstance(event, yaml.DocumentStartEvent)
        if documents > 1:
            raise VariantError(path, line, "a second document; one file holds one")
        if getattr(event, "anchor", None) is not None:
            raise VariantError(path, line, "anchors and aliases are not allowed; write the value out")
        if (tag := getattr(event, "tag", None)) is not None:
            raise VariantError(path, line, f"the tag {tag!r} is not allowed; write the plain value")
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > LIMIT_DEPTH:
            raise VariantError(path, line, f"nested deeper than {LIMIT_DEPTH} levels")
