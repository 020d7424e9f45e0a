"""The pins, the cache and the download of SGLang's kernel files."""

from __future__ import annotations

import hashlib
import socket
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from app.errors import EncodingUnknownError, NotReadyError, UnknownBaseError, UsageError, VariantError
from app.kernel.upstream import (
    Release,
    default_cache,
    download_command,
    fetch_base,
    fetch_wheel,
    held_text,
    load_releases,
    member_base,
    pinned,
    pristine,
)

KERNEL = b"import triton\r\n\r\ndef kernel():\r\n    pass"
MEMBER = "sglang/kernels/k.py"


def wheel_bytes(folder: Path, **members: bytes) -> bytes:
    with zipfile.ZipFile(path := folder / "made.zip", "w") as archive:
        for name, data in {"sglang/kernels/k": KERNEL, **members}.items():
            archive.writestr(zipfile.ZipInfo(f"{name}.py"), data)
    return path.read_bytes()


def release_of(wheel: bytes) -> Release:
    digests = [hashlib.sha256(data).hexdigest() for data in (wheel, KERNEL)]
    return Release("9.9", "sglang-9.9-cp312-cp312-manylinux_2_34_x86_64.whl", digests[0], MEMBER, digests[1], "kernel")


def put(cache: Path, release: Release, data: bytes) -> Path:
    (folder := cache / "wheels").mkdir(parents=True)
    (folder / release.wheel).write_bytes(data)
    return cache


def no_download(release: Release, folder: Path) -> None:
    raise AssertionError(f"{release.wheel} was downloaded")


def test_both_releases_are_pinned_to_one_kernel_text() -> None:
    default, releases = load_releases()
    assert (default, set(releases)) == ("0.5.17", {"0.5.17", "0.5.23"})
    assert {release.file_sha256[:8] for release in releases.values()} == {"37e6dd6d"}


def test_an_unknown_release_is_refused_with_the_pinned_ones() -> None:
    with pytest.raises(UsageError, match=r"unknown SGLang release '0\.5\.1'; known: 0\.5\.17, 0\.5\.23"):
        pinned("0.5.1")


def test_a_pin_that_is_no_digest_is_refused_with_its_line(tmp_path: Path) -> None:
    (path := tmp_path / "upstream.yaml").write_text(
        'default: "1"\nreleases:\n  "1":\n    wheel: sglang-1-cp312-cp312-any.whl\n    wheel_sha256: abc\n'
        "    file: sglang/k.py\n    file_sha256: abc\n    kernel: k\n"
    )
    with pytest.raises(VariantError, match=r"upstream\.yaml:5: wheel_sha256: must be 64 hexadecimal digits"):
        load_releases(path)


@pytest.mark.parametrize("version", ["0.5.17", "0.5.23"])
def test_the_pins_hold_for_the_published_wheel(version: str) -> None:
    pin = pinned(version)
    base = member_base(pin, fetch_wheel(pin, default_cache()), pin.file)
    assert hashlib.sha256(base.text.encode()).hexdigest() == base.sha256 == pin.file_sha256
    assert base == fetch_base(version)


def test_the_base_names_its_module_and_kernel() -> None:
    base = fetch_base()
    assert (base.module, base.release) == ("sglang.kernels.ops.attention.flash_mla_sm120_triton", "0.5.17")
    assert f"def {base.kernel}(" in base.text


def test_a_cached_wheel_needs_no_download(tmp_path: Path) -> None:
    release = release_of(wheel := wheel_bytes(tmp_path))
    found = fetch_wheel(release, put(tmp_path, release, wheel), no_download)
    assert found.read_bytes() == wheel


def test_a_missing_wheel_is_downloaded_once(tmp_path: Path) -> None:
    release, calls = release_of(wheel := wheel_bytes(tmp_path)), []

    def download(release: Release, folder: Path) -> None:
        calls.append(release.version)
        (folder / release.wheel).write_bytes(wheel)

    assert [fetch_wheel(release, tmp_path, download).name for _ in range(2)] == [release.wheel] * 2
    assert calls == ["9.9"]
    assert [path.name for path in (tmp_path / "wheels").iterdir()] == [release.wheel]


def test_a_damaged_cached_wheel_is_downloaded_again(tmp_path: Path) -> None:
    release = release_of(wheel := wheel_bytes(tmp_path))
    cache = put(tmp_path, release, wheel[:-1])
    found = fetch_wheel(release, cache, lambda r, folder: (folder / r.wheel).write_bytes(wheel))
    assert found.read_bytes() == wheel


def test_a_wheel_that_differs_from_its_pin_is_refused_and_not_kept(tmp_path: Path) -> None:
    release = release_of(wheel_bytes(tmp_path))
    with pytest.raises(UnknownBaseError, match=f"pinned is {release.wheel_sha256}"):
        fetch_wheel(release, tmp_path, lambda r, folder: (folder / r.wheel).write_bytes(b"other"))
    assert list((tmp_path / "wheels").iterdir()) == []


def test_an_index_that_gives_another_wheel_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotReadyError, match=r"the package index gave x\.whl; connect once"):
        fetch_wheel(pinned(), tmp_path, lambda r, folder: (folder / "x.whl").write_bytes(b""))


def test_offline_without_a_cached_wheel_ends_in_one_line_that_says_how_to_mend_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        index = f"http://127.0.0.1:{closed.getsockname()[1]}/simple"
    for name, value in {"PIP_INDEX_URL": index, "PIP_EXTRA_INDEX_URL": index, "PIP_CONFIG_FILE": "/dev/null"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(
        NotReadyError, match=r"0\.5\.17's wheel is not cached .* put sglang-0\.5\.17-.*whl into"
    ) as caught:
        fetch_base(cache=tmp_path)
    assert "\n" not in str(caught.value)
    assert list((tmp_path / "wheels").iterdir()) == []


def test_an_unusable_cache_is_named(tmp_path: Path) -> None:
    (file := tmp_path / "file").write_text("")
    with pytest.raises(NotReadyError, match=r"the cache .*file cannot be used: .*set XDG_CACHE_HOME"):
        fetch_base(cache=file)


def test_a_damaged_cached_file_is_replaced_from_the_wheel(tmp_path: Path) -> None:
    wheel, pin = fetch_wheel(pinned(), default_cache()), pinned()
    put(tmp_path, pin, wheel.read_bytes())
    first = fetch_base(cache=tmp_path)
    (kept,) = (tmp_path / "files").rglob("*.py")
    kept.write_text("changed\n")
    assert fetch_base(cache=tmp_path) == first


def test_a_file_that_differs_from_its_pin_is_refused_with_both_digests() -> None:
    pin = pinned()
    found = hashlib.sha256(b"other").hexdigest()
    with pytest.raises(UnknownBaseError, match=f"installed.py has SHA-256 {found}, .*{pin.file_sha256}"):
        pristine(b"other", pin, "installed.py")


def test_a_member_keeps_its_line_ends(tmp_path: Path) -> None:
    release = release_of(wheel := wheel_bytes(tmp_path))
    base = member_base(release, fetch_wheel(release, put(tmp_path, release, wheel)), MEMBER)
    assert base.text.encode() == KERNEL
    assert (base.module, base.kernel) == ("sglang.kernels.k", "kernel")


def test_a_module_that_the_wheel_lacks_is_refused(tmp_path: Path) -> None:
    release = release_of(wheel := wheel_bytes(tmp_path))
    path = fetch_wheel(release, put(tmp_path, release, wheel))
    with pytest.raises(UnknownBaseError, match=r"has no file sglang/none\.py"):
        member_base(release, path, "sglang/none.py")


def test_a_file_that_is_not_utf8_is_refused_with_its_line(tmp_path: Path) -> None:
    release = release_of(wheel := wheel_bytes(tmp_path, latin=b"x = 1\n# \xe9\n"))
    path = fetch_wheel(release, put(tmp_path, release, wheel))
    with pytest.raises(EncodingUnknownError, match=r"latin\.py in .*:2 is not UTF-8 \(byte 0xe9\)"):
        member_base(release, path, "latin.py")


def test_the_download_asks_for_the_pinned_wheel_whatever_python_runs(tmp_path: Path) -> None:
    command = download_command(replace(pinned(), version="9.9"), tmp_path)
    assert command[1:5] == ["-m", "pip", "download", "sglang==9.9"]
    assert command[command.index("--python-version") + 1] == "3.12"
    assert command[command.index("--platform") + 1] == "manylinux_2_34_x86_64"
    assert "--no-deps" in command


def test_the_cache_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert default_cache() == Path("/somewhere/decode-ab")


def test_a_file_that_the_cache_lacks_is_not_held_and_not_downloaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("app.kernel.upstream.pip_download", lambda *_: pytest.fail("downloaded"))
    assert held_text("sglang.kernels.ops.attention.flash_mla_sm120_triton") == ""
