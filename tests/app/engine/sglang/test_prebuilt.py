"""Kernels compiled ahead for a local server: whose Triton compiles, what is kept, and what is put in place."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from app.engine.sglang import prebuilt
from app.engine.sglang.installation import Installation
from app.engine.sglang.prebuilt import Prebuilder
from app.engine.sglang.served import Served
from app.errors import GateError, ProofError
from app.gate.prebuilt import Compiler, Server
from app.gate.seeding import Seeded
from app.kernel.placed import PlacedKernel
from app.kernel.placing import place_kernels
from app.kernel.upstream import fetch_base
from app.kernel.variants import load_variants
from kernels.geometry import Geometry

KERNEL = "_sparse_mla_decode_kernel"
ENTRY = {f"KEY/{KERNEL}.cubin": b"code", "KEY/__grp__k.json": b'{"child_paths": {"k.cubin": "k.cubin"}}'}


@pytest.fixture
def placed(tmp_path: Path) -> PlacedKernel:
    return place_kernels(load_variants(), ("pinned",), fetch_base(), tmp_path / "kernels")["pinned"]


@pytest.fixture
def compiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """A compiler that needs no time; each call is noted."""
    calls = list[Any]()

    def fake(*given: Any) -> Mapping[str, bytes]:
        calls.append(given)
        return ENTRY

    monkeypatch.setattr(prebuilt, "prebuild", fake)
    monkeypatch.setattr(prebuilt, "default_cache", lambda: tmp_path / "lab")
    monkeypatch.setattr(Server, "compiler", lambda self, arch: Compiler("3.6.0", "ab" * 32))
    return calls


def builder(arch: int = 90) -> Prebuilder:
    found = Installation(Path(sys.executable), Path("/s/sglang"), "0.5.17", (Path("/s"),))
    return Prebuilder(Served(), found, Geometry(16, 1), arch, "sglang/kernel.py")


def test_a_variant_is_compiled_once_and_put_into_every_cache(
    tmp_path: Path, placed: PlacedKernel, compiles: list[Any]
) -> None:
    first = builder().put(placed, tmp_path / "one")
    second = builder().put(placed, tmp_path / "two")
    assert (first.seeded, second.seeded, len(compiles)) == (Seeded(2, 0, 0), Seeded(2, 0, 0), 1)
    assert (first.launches, second.compile_s) == (3, 0.0)
    assert (tmp_path / "two" / "KEY" / f"{KERNEL}.cubin").read_bytes() == b"code"


def test_the_servers_own_interpreter_compiles_with_its_own_import_path(
    tmp_path: Path, placed: PlacedKernel, compiles: list[Any]
) -> None:
    builder().put(placed, tmp_path / "one")
    server = compiles[0][-1]
    assert server.python == Path(sys.executable)
    assert server.environment["PYTHONPATH"] == "/s"


def test_another_triton_compiles_anew(
    tmp_path: Path, placed: PlacedKernel, compiles: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    builder().put(placed, tmp_path / "one")
    monkeypatch.setattr(Server, "compiler", lambda self, arch: Compiler("3.6.0", "cd" * 32))
    builder().put(placed, tmp_path / "one")
    assert len(compiles) == 2


def test_a_kept_entry_that_was_changed_is_refused(tmp_path: Path, placed: PlacedKernel, compiles: list[Any]) -> None:
    builder().put(placed, tmp_path / "one")
    (file,) = (tmp_path / "lab").rglob("*.cubin")
    file.write_bytes(b"other")
    with pytest.raises(ProofError, match="is missing or changed"):
        builder().put(placed, tmp_path / "two")


def of_another_lab(entries: Mapping[str, bytes]) -> Mapping[str, bytes]:
    """The same entries as another lab's compiler might write them."""
    return {name: data + b" " for name, data in entries.items()}


def test_entries_that_another_lab_has_put_meanwhile_stay_and_are_taken(
    tmp_path: Path, placed: PlacedKernel, compiles: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def overtaken(*given: Any) -> Mapping[str, bytes]:
        monkeypatch.setattr(prebuilt, "prebuild", lambda *_: of_another_lab(ENTRY))
        builder().put(placed, tmp_path / "theirs")
        return ENTRY

    monkeypatch.setattr(prebuilt, "prebuild", overtaken)
    builder().put(placed, tmp_path / "ours")
    for cache in ("theirs", "ours"):
        assert (tmp_path / cache / "KEY" / f"{KERNEL}.cubin").read_bytes() == b"code "
    assert len(list((tmp_path / "lab" / "prebuilt").iterdir())) == 1


def test_another_lab_that_puts_its_own_between_two_steps_ends_neither(
    tmp_path: Path, placed: PlacedKernel, compiles: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    replace, others = Path.replace, list[Path]()

    def overtaken(path: Path, target: Path) -> Path:
        if (path / "index.json").is_file() and not others:
            others.append(target)
            shutil.copytree(path, target)
        return replace(path, target)

    monkeypatch.setattr(Path, "replace", overtaken)
    assert builder().put(placed, tmp_path / "one").seeded == Seeded(2, 0, 0)
    assert list((tmp_path / "lab" / "prebuilt").iterdir()) == others


def test_kept_entries_whose_index_is_gone_are_compiled_anew(
    tmp_path: Path, placed: PlacedKernel, compiles: list[Any]
) -> None:
    builder().put(placed, tmp_path / "one")
    (index,) = (tmp_path / "lab" / "prebuilt").glob("*/index.json")
    index.unlink()
    assert builder().put(placed, tmp_path / "two").seeded == Seeded(2, 0, 0)
    assert len(compiles) == 2


def test_an_interpreter_without_triton_says_so(tmp_path: Path) -> None:
    bare = Server(Path(sys.executable), {"PYTHONPATH": str(tmp_path)})
    (tmp_path / "triton.py").write_text("raise ModuleNotFoundError(\"No module named 'triton'\")\n")
    with pytest.raises(GateError, match="compiled nothing ahead: ModuleNotFoundError: No module named 'triton'"):
        bare.compiler(90)


@pytest.mark.kernel
@pytest.mark.slow
def test_what_is_put_ahead_is_what_the_same_interpreter_looks_for(tmp_path: Path, placed: PlacedKernel) -> None:
    pytest.importorskip("triton", reason="needs triton; requirements/gate.lock has it")
    built = builder()
    ahead = built.put(placed, tmp_path / "cache")
    before = {p.name for p in (tmp_path / "cache").iterdir()}
    text = placed.path.read_text()
    found = [asdict(launch) for launch in built._launches(text, KERNEL)]
    request = {"text": text, "path": "elsewhere.py", "first": KERNEL, "arch": 90, "launches": found}
    assert built._server.ask(request, tmp_path / "cache") == ahead.compiler
    assert {p.name for p in (tmp_path / "cache").iterdir()} == before
    assert len(before) == ahead.launches == 3
