"""What each option of each task means, in a line: shown by `invoke TASK --help` and in docs/reference.md."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any


def shown_help(body: Callable[..., Any]) -> dict[str, str]:
    """What `--help` shows of a task's options by parameter: what each means, and its default where that says something.

    body: the task's function, from whose signature the defaults are read.
    """
    said, parameters = HELP[body.__name__], inspect.signature(body).parameters
    return {
        name: f"{text} (default: {d})" if (d := told_default(parameters[name].default)) else text
        for name, text in said.items()
    }


def told_default(default: object) -> str:
    """A default as text; empty where it says nothing: no text, no number, off, or none at all."""
    return "" if default is inspect.Parameter.empty or not default else str(default)


def option_help(task: str) -> dict[str, str]:
    """Help of a task's options by their names on the command line; Invoke itself gives it away at its first use."""
    said = HELP[task.replace("-", "_")]
    return {parameter.strip("_").replace("_", "-"): text for parameter, text in said.items()}


_ENGINE = "what stands behind prefill and decode: sglang or sim (SIMULATED, no GPU)"
_VARIANT = "a name from invoke variants"
_JSON = "print the same as JSON"
_CAMPAIGN = "folder name under runs/"
_ALLOW_NOOP = "go on although the machine code is the control's"
_CONCURRENCY = "requests in flight, rising, separated by commas"
_DESIGN = "mirrored (ABBA; free of drift) or single (AB, then BA; half the starts)"

HELP: Mapping[str, Mapping[str, str]] = {
    "demo": {
        "seed": "draws the order of starts and all noise; empty draws one",
        "quiet": "dated lines in place of a live bar",
    },
    "test": {"select": "only tests whose name matches this pytest expression; skips lint and types"},
    "docs": {"out": "folder for the pages; emptied first"},
    "doctor": {
        "engine": _ENGINE,
        "runtime": "where the stack runs: docker or local; empty: docker for sglang, local for sim",
        "json": _JSON,
    },
    "variants": {
        "kernels": "the pinned release's autotuned kernels in place of the variants, with pristine files to copy",
        "json": _JSON,
    },
    "new_variant": {
        "name": "its name, and its file's under kernels/variants/",
        "from_": f"{_VARIANT}, whose change it begins with and which becomes its control",
    },
    "diff": {
        "variant": _VARIANT,
        "release": "SGLang release to patch; empty: the pinned one",
        "against": "pristine or control (what that runs); empty: pristine, for a kernel of its own inside its file",
    },
    "check": {
        "variant": _VARIANT,
        "arch": "compute capability to compile for: 120 or 90",
        "triton": "Triton version to compile with; empty: the locked one",
        "model": "config.json or its folder, for the head count; empty: DeepSeek-V4-Flash",
        "tp": "attention tensor parallelism, which divides the heads",
        "stock": "try the configs on SGLang's own kernel in place of the variant's file",
        "allow_noop": _ALLOW_NOOP,
        "json": _JSON,
    },
    "profile_kernel": {
        "variant": _VARIANT,
        "trace": "profiler trace to read; empty: record one on this GPU",
        "out": "where to keep a recorded trace",
        "arch": "compute capability that the trace is held against",
        "batch": "requests in the recorded launch",
        "heads": "query heads of the recorded launch; 0: the model's share",
    },
    "bench_kernel": {
        "variants": "names separated by commas",
        "out": "CSV to write; its conditions go into a JSON beside it",
        "flashmla": "sglang-kernel's flashmla_ops library, timed beside the variants",
        "sweep": "batches 1 to 512 of one shape in place of the table's cases",
    },
    "bench_client": {},
    "chaos": {
        "long": "every service in every phase, 50 kills of the lab, 2,000 streams and an hour's soak; hours",
        "only": "all, or by commas: kills, network, services, descriptors, disk, clock, lab, load, soak, containers",
        "out": "CSV to write; empty: docs/results/faults.csv and the page",
    },
    "audit": {
        "service": "which to ask: pypi or osv",
    },
    "compare": {
        "variants": "names separated by commas; a control that is not named is added",
        "concurrency": _CONCURRENCY,
        "blocks": "blocks of starts; at least 4 for a verdict",
        "design": _DESIGN,
        "runtime": "where the stack runs: docker or local",
        "engine": _ENGINE,
        "time_scale": "engine seconds per wall second; sim only",
        "lengths": "tokens in and out of every request",
        "settle": "engine seconds to wait after the last slot is filled",
        "window": "engine seconds that are measured",
        "decode_only": "fresh requests at each level, whose answers outlast its window: no prefill falls into it",
        "delta": "smallest effect of interest, as a share: 0.01 is 1 %",
        "slo": "objectives of a request in ms, such as ttft=500,tpot=50,e2e=20000: adds goodput to every figure",
        "seed": "draws the order of starts and all noise; empty draws one",
        "id": "name of the campaign's folder under runs/; empty: the time",
        "resume": "campaign to go on with; its own plan rules, other options are ignored",
        "calibration": "timing file of the simulated engine; empty: the committed one",
        "model": "folder of a model, or dummy-dsv4; --runtime local --engine sglang only",
        "server": "settings of SGLang's own servers, such as heads=16,topology=single; see docs/gpu.md",
        "against": "one control for all variants, in place of their own",
        "import_": "folder with import.csv: judge what another driver measured, by --variants, --delta and --id alone",
        "quiet": "dated lines in place of a live bar",
    },
    "report": {
        "id": _CAMPAIGN,
        "slope": "two concurrencies: does throughput still rise between them?",
        "amdahl": "YAML of kernel times and shares: can the kernel explain the effect?",
        "from_rows": "cut the windows anew from the raw rows, by this version's rules",
        "json": "print summary.json's data, curves and kernel shares in place of tables",
    },
    "ledger": {"id": _CAMPAIGN, "kernels": "CSV of invoke bench-kernel to enter in place of a campaign", "json": _JSON},
    "plan": {
        "effect": "change to find, in percent",
        "power": "probability of finding it",
        "campaign": "campaign whose noise is taken as pilot",
        "sd": "standard deviation of a block difference in percent, in place of a campaign",
        "concurrency": f"{_CONCURRENCY}; empty: the campaign's, or with --sd 1,8,48,64,80,96",
        "design": f"{_DESIGN}; empty: the campaign's, or with --sd mirrored",
        "hours": "also say what this many hours can show",
        "variants": "variants in the campaign, controls included",
        "start_s": "wall seconds of one start",
        "level_s": "wall seconds of one concurrency of a start",
        "json": _JSON,
    },
    "calibrate_verdict": {"campaigns": "virtual campaigns a row"},
    "build": {"variant": _VARIANT, "engine": _ENGINE, "allow_noop": _ALLOW_NOOP},
    "images": {"json": _JSON},
    "up": {
        "variant": _VARIANT,
        "engine": _ENGINE,
        "runtime": "docker; local stacks live inside compare only",
        "override": "further compose files, separated by commas, such as compose.monitoring.yml,compose.rdma.yml",
    },
    "switch": {"variant": _VARIANT},
    "verify": {"json": _JSON},
    "pin": {"image": "what to build on from now on, as NAME:TAG@sha256:DIGEST; a tag alone is refused"},
    "promote": {
        "variant": _VARIANT,
        "engine": "whose image: sglang or sim",
        "force": "without an accepting verdict; needs --reason",
        "reason": "why, kept in the ledger",
    },
    "rollback": {"engine": "whose image: sglang or sim"},
    "prepare_gpu": {
        "bundles": "server, lab, pd and tests, separated by commas; one call carries one or two",
        "out": "folder for them; it is to be ignored by git and carried along",
        "caches": "archive of what a server compiled there, to travel with it",
    },
    "manifests": {"out": "folder for base and overlays"},
    "down": {},
    "release": {
        "version": "MAJOR.MINOR.PATCH; pyproject.toml and CHANGELOG.md must name it already",
        "skip_tests": "do not run the tests; the tag's message says so",
        "dry_run": "check, test and build, but tag nothing",
    },
}
