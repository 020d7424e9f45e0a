"""Looks at a start of SGLang after its load: attention on common inputs, log probabilities, a profiler's trace."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from app.engine import Endpoints
from app.engine.inspection import Inspection
from app.engine.sglang import logprobs, outputs, traced, tracing
from app.engine.sglang.plugin.decode_ab_replay import INPUTS
from app.engine.sglang.running import Running
from app.engine.sglang.served import Served
from app.engine.sglang.witness import Testimony, attending, read_testimonies
from app.errors import NotReadyError
from app.gate.triton_cache import read_entries

# Of one start of the control, so that it can be held against itself.
ASKINGS = 2
PROMPTS = 4
# Enough for SGLang to take up the profiler while all of them run, at any speed of decode.
TOKENS = 1024
SPARE_TOKENS = 16


class Inspector:
    """Keeps what each variant's starts showed, to hold the next ones against it. folder: of its own."""

    def __init__(self, served: Served, folder: Path) -> None:
        self._served, self._folder = served, folder
        self._outputs = defaultdict[str, list[outputs.Outputs]](list)
        self._answers = defaultdict[str, list[tuple[logprobs.Answered, ...]]](list)

    def inspect(self, running: Running, service: int, endpoints: Endpoints, asked: Inspection) -> dict[str, Any]:
        """Evidence for proof.json; ProofError where it speaks against the start. What could not be had says why."""
        self._folder.mkdir(parents=True, exist_ok=True)
        told = read_testimonies(running.evidence, service)
        return {
            # First: the requests under the others are left unfinished.
            "logprobs": _or_why(lambda: self._compared_answers(endpoints, asked)),
            "outputs": _or_why(lambda: self._compared_outputs(told, endpoints, asked)),
            "trace": _or_why(lambda: self._traced(running, told, endpoints, asked)),
        }

    def _compared_outputs(
        self, told: tuple[Testimony, ...], endpoints: Endpoints, asked: Inspection
    ) -> Mapping[str, Any]:
        if not (self._folder / INPUTS).is_file() or not self._outputs:
            rows = min(outputs.ROWS, self._served.max_running)
            outputs.record_inputs(endpoints, asked.prompts(rows), self._folder)
        found = outputs.replay(endpoints, self._folder, [t.pid for t in told])
        self._outputs[asked.variant].append(found)
        return {
            "inputs_sha256": found.inputs_sha256,
            "attention": found.attention,
            "layers": {kind: list(values.shape) for kind, values in sorted(found.first.items())},
            "against": [outputs.compare(v, c, self._outputs) for v, c in _pairs(asked, self._outputs)],
        }

    def _compared_answers(self, endpoints: Endpoints, asked: Inspection) -> Mapping[str, Any]:
        prompts = asked.prompts(PROMPTS)
        for _ in range(ASKINGS):
            self._answers[asked.variant].append(logprobs.ask(endpoints, prompts))
        return {"against": [logprobs.compare(v, c, self._answers) for v, c in _pairs(asked, self._answers)]}

    def _traced(
        self, running: Running, told: tuple[Testimony, ...], endpoints: Endpoints, asked: Inspection
    ) -> Mapping[str, Any]:
        served = self._served
        prompts = asked.prompts(min(asked.concurrency, served.max_running))
        tokens = min(TOKENS, served.context_length - asked.lengths.prompt_tokens - SPARE_TOKENS)
        path = tracing.take_trace(endpoints, prompts, tokens, self._folder)
        try:
            facts = self._read(path, running, told, len(prompts))
        finally:
            name = tracing.keep(path, asked.folder)
        return {**facts, "file": name}

    def _read(self, path: Path, running: Running, told: tuple[Testimony, ...], requests: int) -> Mapping[str, Any]:
        from app.engine.sglang.evidence import predict

        kernel, arch = running.kernel, running.arch
        origin = traced.Origin(kernel.variant, arch, [t.pid for t in told], running.since)
        heads = attending(told).heads or running.rank_heads
        report = predict(kernel, arch, heads)
        if report is None or not kernel.kernel:
            return traced.read_other(path, origin, kernel.selector, requests)
        entries = read_entries(running.triton_cache, kernel.kernel, running.since)
        return traced.read_trace(path, origin, traced.Expected(report, heads, entries), requests)


def _or_why(look: Callable[[], Mapping[str, Any]]) -> dict[str, Any]:
    began = time.monotonic()
    try:
        found = dict(look())
    except NotReadyError as e:
        found = {"why_not": str(e)}
    return found | {"took_s": round(time.monotonic() - began, 2)}


def _pairs(asked: Inspection, seen: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Variants with their controls, of which this start is the one or the other and both were seen."""
    for variant, control in sorted(asked.controls.items()):
        if asked.variant in (variant, control) and seen.get(variant) and seen.get(control):
            yield variant, control
