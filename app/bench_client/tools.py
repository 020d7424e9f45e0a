"""The other clients: how each is installed into its own environment, called, and what its result file says."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.bench_client.tokenizer import HUB_NAME
from app.errors import NotReadyError
from app.kernel.upstream import default_cache, fetch_wheel, pinned

# The CPU build: plain `torch`, which two of the clients ask for, would be gigabytes of CUDA libraries.
TORCH = "torch==2.13.0"
INSTALL_S = 1800.0


@dataclass(frozen=True, slots=True)
class Load:
    """What every client is asked to send: a closed loop of streams, each request of exact lengths."""

    streams: int
    requests: int
    prompt_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True)
class Reported:
    """What a client says it saw; None where it does not say. Times in milliseconds, means unless named."""

    ttft_ms: float | None
    tpot_ms: float | None
    gap_p99_ms: float | None
    tokens_per_s: float | None


@dataclass(frozen=True, slots=True)
class Tool:
    """One client. packages: what pip installs, in steps; arguments: url, load, tokenizer folder, output folder."""

    name: str
    packages: tuple[tuple[str, ...], ...]
    arguments: Callable[[Path, str, Load, Path, Path], list[str]]
    read: Callable[[Path], Reported]
    prepare: Callable[[Path], None] = lambda folder: None

    @property
    def home(self) -> Path:
        """Its virtual environment, in the lab's cache."""
        return default_cache() / "bench" / self.name

    def install(self) -> None:
        """Makes the environment when it is not there whole; NotReadyError with pip's last line."""
        done = self.home / "installed"
        if done.exists():
            return
        bare = () if self.packages else ("--without-pip",)
        _run([sys.executable, "-m", "venv", *bare, str(self.home)], self.name)
        for step in self.packages:
            _run([str(self.home / "bin" / "pip"), "install", "--quiet", *step], self.name)
        self.prepare(self.home)
        done.write_text("\n".join(" ".join(step) for step in self.packages))


def _run(argv: list[str], name: str) -> None:
    done = subprocess.run(argv, capture_output=True, text=True, timeout=INSTALL_S, check=False)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        raise NotReadyError(f"{name} could not be installed: {last}; it is left out")


def _sglang_arguments(home: Path, url: str, load: Load, tokenizer: Path, out: Path) -> list[str]:
    argv = [str(home / "bin" / "python"), "-m", "sglang.benchmark.serving", "--backend", "sglang-oai"]
    argv += ["--base-url", url, "--model", "mock", "--tokenizer", str(tokenizer), "--dataset-name", "random-ids"]
    argv += ["--random-input-len", str(load.prompt_tokens), "--random-output-len", str(load.output_tokens)]
    argv += ["--random-range-ratio", "1", "--num-prompts", str(load.requests), "--warmup-requests", "0"]
    argv += ["--max-concurrency", str(load.streams), "--disable-tqdm", "--output-file", str(out / "out.jsonl")]
    return argv


def _sglang_read(out: Path) -> Reported:
    found = json.loads((out / "out.jsonl").read_text().splitlines()[-1])
    return Reported(*(found.get(k) for k in ("mean_ttft_ms", "mean_tpot_ms", "p99_itl_ms", "output_throughput")))


def _sglang_prepare(home: Path) -> None:
    # The client alone: its package's own import would ask for the whole serving stack.
    wheel = fetch_wheel(pinned(), default_cache())
    (site,) = home.glob("lib/python*/site-packages")
    with zipfile.ZipFile(wheel) as files:
        for name in files.namelist():
            if name.startswith("sglang/benchmark/") or name == "sglang/srt/utils/network.py":
                files.extract(name, site)
    for package in ("sglang", "sglang/srt", "sglang/srt/utils", "sglang/srt/disaggregation"):
        (site / package).mkdir(parents=True, exist_ok=True)
        (site / package / "__init__.py").touch()
    (site / "sglang/srt/disaggregation/utils.py").write_text('FAKE_BOOTSTRAP_HOST = "2.2.2.2"\n')


def _aiperf_arguments(home: Path, url: str, load: Load, tokenizer: Path, out: Path) -> list[str]:
    argv = [str(home / "bin" / "aiperf"), "profile", "--model", "mock", "--url", url, "--streaming"]
    argv += ["--endpoint-type", "completions", "--tokenizer", HUB_NAME, "--artifact-dir", str(out)]
    argv += ["--concurrency", str(load.streams), "--request-count", str(load.requests), "--ui", "none"]
    argv += ["--synthetic-input-tokens-mean", str(load.prompt_tokens), "--synthetic-input-tokens-stddev", "0"]
    argv += ["--output-tokens-mean", str(load.output_tokens), "--output-tokens-stddev", "0"]
    argv += ["--extra-inputs", "ignore_eos:true", "--extra-inputs", f"min_tokens:{load.output_tokens}"]
    return argv


def _aiperf_read(out: Path) -> Reported:
    found = json.loads(next(out.rglob("profile_export_aiperf.json")).read_text())
    return Reported(
        _dig(found, "time_to_first_token", "avg"),
        _dig(found, "inter_token_latency", "avg"),
        _dig(found, "inter_chunk_latency", "p99"),
        _dig(found, "output_token_throughput", "avg"),
    )


def _guidellm_arguments(home: Path, url: str, load: Load, tokenizer: Path, out: Path) -> list[str]:
    data = f"kind=synthetic_text,prompt_tokens={load.prompt_tokens},output_tokens={load.output_tokens}"
    argv = [str(home / "bin" / "guidellm"), "run", "--disable-console"]
    argv += ["--backend", f"kind=openai_http,target={url},model=mock,request_format=/v1/completions"]
    argv += ["--profile", f"kind=concurrent,streams={load.streams}", "--data", data]
    argv += ["--constraint", f"kind=max_requests,count={load.requests}"]
    argv += ["--tokenizer", f"kind=huggingface_auto,model={tokenizer}"]
    return [*argv, "--output", f"kind=json,path={out / 'out.json'}"]


def _guidellm_read(out: Path) -> Reported:
    metrics = json.loads((out / "out.json").read_text())["benchmarks"][0]["metrics"]
    return Reported(
        _dig(metrics, "time_to_first_token_ms", "successful", "mean"),
        _dig(metrics, "inter_token_latency_ms", "successful", "mean"),
        None,
        _dig(metrics, "output_tokens_per_second", "successful", "mean"),
    )


def _genai_arguments(home: Path, url: str, load: Load, tokenizer: Path, out: Path) -> list[str]:
    argv = [str(home / "bin" / "genai-bench"), "benchmark", "--api-backend", "sglang", "--api-base", url]
    argv += ["--api-key", "none", "--api-model-name", "mock", "--model-tokenizer", str(tokenizer)]
    argv += ["--task", "text-to-text", "--traffic-scenario", f"D({load.prompt_tokens},{load.output_tokens})"]
    argv += ["--num-concurrency", str(load.streams), "--max-requests-per-run", str(load.requests)]
    argv += ["--max-time-per-run", "5", "--experiment-base-dir", str(out)]
    argv += ["--additional-request-params", json.dumps({"ignore_eos": True, "min_tokens": load.output_tokens})]
    return argv


def _genai_read(out: Path) -> Reported:
    path = next(p for p in out.rglob("*.json") if "concurrency" in p.name)
    found = json.loads(path.read_text())["aggregated_metrics"]
    stats = found["stats"]

    def ms(name: str) -> float | None:
        seconds = _dig(stats, name, "mean")
        return None if seconds is None else seconds * 1e3

    return Reported(ms("ttft"), ms("tpot"), None, found.get("mean_output_throughput_tokens_per_s"))


def _dig(data: Any, *path: str) -> float | None:
    for key in path:
        data = data.get(key) if isinstance(data, dict) else None
    return float(data) if isinstance(data, int | float) else None


SGLANG_NEEDS = (
    "aiohttp",
    "numpy",
    "requests",
    "tqdm",
    "transformers",
    "pillow",
    "pybase64",
    "orjson",
    "psutil",
    "pyzmq",
)
TOOLS = (
    Tool("sglang", (SGLANG_NEEDS,), _sglang_arguments, _sglang_read, _sglang_prepare),
    Tool("aiperf", (("aiperf",),), _aiperf_arguments, _aiperf_read),
    Tool("guidellm", ((TORCH,), ("guidellm",)), _guidellm_arguments, _guidellm_read),
    Tool("genai-bench", ((TORCH,), ("genai-bench",)), _genai_arguments, _genai_read),
)
