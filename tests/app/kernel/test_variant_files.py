"""One variant file: what its values become, and what is refused with its line."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.environment import ROOT
from app.errors import VariantError
from app.kernel.replacement import LIMIT_BYTES as LIMIT_FILE_BYTES
from app.kernel.variant import Change, KernelConfig
from app.kernel.variant_files import read_variant

GOOD = """\
name: mine
control: pinned
selector: triton
target: {module: sglang.kernels.x, kernel: k}
change:
  configs:
    - {BLOCK_T: 16, num_warps: 4, num_stages: 2}
    - {BLOCK_T: 32, num_warps: 8, num_stages: 3}
  key: [topk]
  constants: {TUNED: {a: [1, 2.5, null, true, x]}}
hypothesis: it helps
prediction: {1: [-2, 2.5], 96: [15, 25]}
status: open
"""
PINNED = "name: pinned\nselector: triton\ntarget: {module: sglang.x, kernel: k}\nhypothesis: h\nstatus: control\n"


def variant_file(tmp_path: Path, text: str) -> Path:
    (path := tmp_path / "mine.yaml").write_text(text)
    return path


def test_a_full_file_becomes_its_values(tmp_path: Path) -> None:
    variant = read_variant(variant_file(tmp_path, GOOD), tmp_path).variant
    assert variant.change == Change(
        configs=(KernelConfig({"BLOCK_T": 16}, 4, 2), KernelConfig({"BLOCK_T": 32}, 8, 3)),
        key=("topk",),
        constants={"TUNED": {"a": [1, 2.5, None, True, "x"]}},
    )
    assert variant.prediction == {1: (-2.0, 2.5), 96: (15.0, 25.0)}


@pytest.mark.parametrize(
    ("old", "new", "line", "said"),
    [
        ("status: open", "status: open\ncolour: red", 14, "unknown key 'colour'; allowed: name, selector"),
        ("  key: [topk]", "  kye: [topk]", 9, "unknown key 'kye'; allowed: file, configs, key, constants"),
        ("kernel: k}", "kernel: k, line: 3}", 4, "unknown key 'line'; allowed: module, kernel"),
        ("status: open\n", "", 1, "missing status"),
        ("num_warps: 4, ", "", 7, "missing num_warps"),
        ("num_warps: 8", "num_warps: 6", 8, "must be one of 1, 2, 4, 8, 16, 32, not 6"),
        ("num_warps: 8", "num_warps: 64", 8, "must be one of 1, 2, 4, 8, 16, 32, not 64"),
        ("num_warps: 8", "num_warps: 010", 8, "must be one of 1, 2, 4, 8, 16, 32, not '010'"),
        ("num_warps: 8", "num_warps: true", 8, "must be one of 1, 2, 4, 8, 16, 32, not 'true' (bool)"),
        ("BLOCK_T: 32", "BLOCK_T: 24", 8, "must be a power of two (1, 2, 4, 8, 16, 32, ...), not 24"),
        ("BLOCK_T: 32", "BLOCK_T: true", 8, "must be a power of two"),
        ("BLOCK_T: 32", "BLOCK_H: 32", 8, "must set the same constants as (16,4,2)"),
        ("BLOCK_T: 32, num_warps: 8, num_stages: 3", "BLOCK_T: 16, num_warps: 4, num_stages: 2", 8, "listed twice"),
        ("num_stages: 3", "num_stages: 0", 8, "must be a whole number from 1, not 0"),
        ("num_stages: 3", "num_stages: 1:30", 8, "must be a whole number from 1, not '1:30' (int)"),
        ("key: [topk]", "key: []", 9, "must not be an empty list"),
        ("key: [topk]", "key: topk", 9, "must be a list, not 'topk'"),
        ("key: [topk]", "key: [topk, topk]", 9, "named twice"),
        ("key: [topk]", "key: [lambda]", 9, "keyword 'lambda'"),
        ("selector: triton", "selector: trition", 3, "must be one of triton, flashinfer, flashmla; not 'trition'"),
        ("selector: triton", "selector: flashinfer", 3, "can have no target"),
        ("status: open", "status: done", 13, "must be one of control, planned, open, confirmed, refuted"),
        ("name: mine", "name: My Variant", 1, "1 to 40 of a-z"),
        ("name: mine", "name: stable", 1, "reserved"),
        ("name: mine", "name: on", 1, "not 'on' (bool)"),
        ("name: mine", "name: mine\nname: mine", 2, "key 'name' is given twice"),
        ("96: [15, 25]", "1: [15, 25]", 12, "key '1' is given twice"),
        ("96: [15, 25]", "0: [15, 25]", 12, "concurrency must be at least 1, not 0"),
        ("96: [15, 25]", "96: [25, 15]", 12, "low first"),
        ("96: [15, 25]", "96: [15]", 12, "prediction at 96: must be [low, high]"),
        ("96: [15, 25]", "96: [15, .inf]", 12, "must be a finite number, not '.inf' (float)"),
        ("{1: [-2, 2.5], 96: [15, 25]}", "{96: [1, 2], 1: [1, 2]}", 12, "concurrencies must rise: 1, 96"),
        ("control: pinned\n", "", 11, "is against a control, and none is named"),
        ("hypothesis: it helps", "hypothesis: '  '", 11, "must be a text"),
        ("hypothesis: it helps", "hypothesis: &a it helps", 11, "anchors and aliases are not allowed"),
        ("hypothesis: it helps", "hypothesis: !!python/name:os.system x", 11, "tag"),
        ("hypothesis: it helps", "hypothesis: it: helps", 11, "is not YAML"),
        ("module: sglang.kernels.x", "module: ../x", 4, "a dotted module path"),
    ],
)
def test_a_wrong_value_is_refused_with_its_line(tmp_path: Path, old: str, new: str, line: int, said: str) -> None:
    assert old in GOOD
    path = variant_file(tmp_path, GOOD.replace(old, new))
    with pytest.raises(VariantError) as caught:
        read_variant(path, tmp_path)
    assert str(caught.value).startswith(f"mine.yaml:{line}: ")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "is empty"),
        (b"# only a comment\n", "is empty"),
        (b"name: \xff\n", ":1: is not UTF-8"),
        (b"name: a\x00b\n", "is not YAML"),
        (b"[" * 200, ":1: nested deeper than 16 levels"),
        (b"#" * 70_000, "is larger than 64 KiB"),
        (b"name: a\n---\nname: b\n", ":2: a second document"),
        (b"- name\n", "must be a mapping, not a list"),
        (b"? [a]\n: b\n", "a key must be a plain word or number"),
    ],
)
def test_an_unreadable_file_is_refused_in_one_line(tmp_path: Path, data: bytes, said: str) -> None:
    (path := tmp_path / "mine.yaml").write_bytes(data)
    with pytest.raises(VariantError) as caught:
        read_variant(path, tmp_path)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_change_without_the_triton_selector_is_refused(tmp_path: Path) -> None:
    text = "name: a\nselector: flashinfer\nhypothesis: h\nstatus: open\nchange: {key: [n]}\n"
    with pytest.raises(VariantError, match=r"mine.yaml:5: .*does not run the kernel file"):
        read_variant(variant_file(tmp_path, text), tmp_path)


@pytest.mark.parametrize(
    ("file", "said"),
    [
        ("/etc/passwd.py", "inside the repository"),
        ("kernels/../../x.py", "without '..'"),
        ("kernels/out.py", "leads out of the repository"),
        ("kernels/loop.py", "is not a file"),
        ("kernels/none.py", "is not a file"),
        ("kernels/dir.py", "is not a file"),
        ("kernels/k.txt", "must be a Python file"),
        ("kernels/large.py", "is larger than 4 MiB"),
    ],
)
def test_a_replacement_file_outside_the_rules_is_refused(tmp_path: Path, file: str, said: str) -> None:
    kernels = tmp_path / "repository" / "kernels"
    (kernels / "dir.py").mkdir(parents=True)
    (tmp_path / "elsewhere.py").write_text("x = 1\n")
    (kernels / "out.py").symlink_to(tmp_path / "elsewhere.py")
    (kernels / "loop.py").symlink_to("loop.py")
    (kernels / "k.txt").write_text("x = 1\n")
    (kernels / "large.py").write_bytes(b"#" * (LIMIT_FILE_BYTES + 1))
    text = PINNED + f"change: {{file: {file}}}\n"
    with pytest.raises(VariantError, match=f"mine.yaml:6: .*{said}"):
        read_variant(variant_file(tmp_path, text), tmp_path / "repository")


def test_a_replacement_file_of_the_repository_is_kept_as_a_relative_path(tmp_path: Path) -> None:
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels" / "k.py").write_text("x = 1\n")
    path = variant_file(tmp_path, PINNED + "change: {file: kernels/k.py}\n")
    assert read_variant(path, tmp_path).variant.change.file == Path("kernels/k.py")


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("variants") / "any.yaml"


def read_or_refuse(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    with contextlib.suppress(VariantError):
        read_variant(path, ROOT)


ANY_DATA = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
SHORT = settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@SHORT
@given(
    place=st.integers(0, len(GOOD)), length=st.integers(0, 12), new=st.text(max_size=6) | st.sampled_from("{}[]:&*!|>-")
)
def test_a_damaged_file_is_read_or_refused_and_never_fails(scratch: Path, place: int, length: int, new: str) -> None:
    text = GOOD[:place] + new + GOOD[place + length :]
    read_or_refuse(scratch, text.encode("utf-8", "surrogatepass"))


@SHORT
@given(key=st.sampled_from(sorted(yaml.safe_load(GOOD))), value=ANY_DATA)
def test_any_value_at_a_known_key_is_read_or_refused(scratch: Path, key: str, value: object) -> None:
    read_or_refuse(scratch, yaml.safe_dump({**yaml.safe_load(GOOD), key: value}, allow_unicode=True).encode())
