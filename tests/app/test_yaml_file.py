"""What a YAML file is read as does not depend on whether PyYAML was built with libyaml."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from app.errors import VariantError
from app.kernel.variants import VARIANTS
from app.yaml_file import read_yaml


def read(path: Path) -> object:
    """The file's value, or the line and first words of its refusal."""
    try:
        entry = read_yaml(path)
        return entry.literal(), [value.line for _, value in entry.pairs()]
    except VariantError as fault:
        return fault.line, fault.what.split(":")[0]


def both(path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[object, object]:
    with_libyaml = read(path)
    monkeypatch.setattr(yaml, "__with_libyaml__", False)
    return with_libyaml, read(path)


@pytest.mark.parametrize("path", sorted(VARIANTS.glob("*.yaml")), ids=lambda p: p.stem)
def test_a_variant_is_read_the_same(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = both(path, monkeypatch)
    assert one == other
    assert isinstance(one, tuple)
    assert isinstance(one[0], dict)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a: 1\nb: &x 2\n", 2),
        ("a: 1\nb: !!python/name:os.system x\n", 2),
        ("a: 1\n---\nb: 2\n", 2),
        ("a: [1\nb: 2\n", 2),
        ("a: 1\n\tb: 2\n", 2),
        ("a: \x07\n", None),
        (f"a: {'[' * 20}{']' * 20}\n", 1),
        ("# nothing\n", None),
    ],
)
def test_a_fault_is_refused_at_the_same_line(
    text: str, line: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (path := tmp_path / "v.yaml").write_text(text)
    one, other = both(path, monkeypatch)
    assert one == other
    assert isinstance(one, tuple)
    assert one[0] == line
