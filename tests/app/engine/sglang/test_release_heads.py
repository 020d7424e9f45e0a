"""What the kernel asks SGLang, to tell a rank's own heads from those that fill it up, is in both releases."""

from __future__ import annotations

import zipfile

import pytest

from app.kernel.upstream import default_cache, fetch_wheel, pinned
from app.settings import RELEASES


def source(release: str, file: str) -> str:
    with zipfile.ZipFile(fetch_wheel(pinned(release), default_cache())) as wheel:
        return wheel.read(f"sglang/srt/{file}").decode()


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("runtime_context.py", "def get_parallel() -> ParallelContext:"),
        ("runtime_context.py", "def get_server_args() -> ServerArgs:"),
        ("runtime_context.py", '"attn_tp_size",'),
        ("configs/model_config.py", "def from_server_args("),
        ("configs/model_config.py", "self.num_attention_heads = "),
    ],
)
def test_the_release_tells_ranks_and_heads_by_these_names(release: str, file: str, text: str) -> None:
    assert text in source(release, file)


@pytest.mark.parametrize("release", RELEASES)
def test_the_release_pads_a_ranks_heads_to_64_and_drops_what_comes_out_for_them(release: str) -> None:
    model = source(release, "models/deepseek_v4.py")
    assert "64 if self.n_local_heads <= 64 else self.n_heads" in model
    assert "o = o[:, tp_slice, :]" in model
