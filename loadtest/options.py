"""Options of the load driver on Locust's command line and in its web form, and the order they amount to."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from app.errors import UsageError
from loadtest.order import StartOrder, Workload
from loadtest.plan import Lengths, WindowRules


def add_options(parser: Any) -> None:
    """Adds the lab's options; those shown in the web form can be changed there before each run."""
    group = parser.add_argument_group("decode-ab")
    add = group.add_argument
    add("--decode-ab-order", default="", help="order of one start (JSON); then all other options are ignored")
    add("--decode-ab-variant", default="as-deployed", help="name of what runs, for the record")
    add("--decode-ab-concurrencies", default="1,8", help="levels in visiting order, for example 1,8,48,64,80,96")
    add("--decode-ab-lengths", default="1024,256", help="prompt and output tokens of every request")
    add("--decode-ab-window", default="10,60", help="settle and window seconds (engine time)")
    add("--decode-ab-model", default="default", help="served model name")
    add("--decode-ab-api", default="completions", choices=["completions", "chat"], help="endpoint")
    add("--decode-ab-seed", default="0", help="seed of the prompt list")
    add("--decode-ab-decode-url", default="", help="decode server, to read its counters and flush its cache")
    add("--decode-ab-prefill-url", default="", help="prefill server, likewise")
    add("--decode-ab-time-scale", type=float, default=1.0, help="engine seconds per wall second (simulated engine)")
    add("--decode-ab-workload", default="fixed", choices=["fixed", "uniform", "lognormal", "dataset"], help="lengths")
    add("--decode-ab-spread", type=float, default=0.0, help="of uniform or lognormal lengths")
    add("--decode-ab-dataset", default="", help='JSONL of {"prompt", "output_tokens"}')
    add("--decode-ab-out", default="runs/locust", help="folder for records of runs without an order")


def order_from(environment: Any) -> StartOrder:
    """The order file, or an order made of the options; UsageError says which option cannot be."""
    options = environment.parsed_options
    if options.decode_ab_order:
        return StartOrder.read(Path(options.decode_ab_order))
    if not environment.host:
        raise UsageError("no host; give --host http://router:port or fill in the form's Host field")
    prompt, output = _numbers("lengths", options.decode_ab_lengths, 2)
    settle, window = _numbers("window", options.decode_ab_window, 2)
    dataset = Path(options.decode_ab_dataset) if options.decode_ab_dataset else None
    return StartOrder(
        block=0,
        start=0,
        variant=options.decode_ab_variant,
        control="",
        concurrencies=tuple(int(c) for c in _numbers("concurrencies", options.decode_ab_concurrencies)),
        prompt_seed=options.decode_ab_seed,
        router_url=environment.host,
        out=Path(options.decode_ab_out) / time.strftime("%Y%m%d-%H%M%S"),
        model=options.decode_ab_model,
        lengths=Lengths(int(prompt), int(output)),
        window=WindowRules(settle_s=settle, window_s=window),
        time_scale=float(options.decode_ab_time_scale),
        decode_url=options.decode_ab_decode_url,
        prefill_url=options.decode_ab_prefill_url,
        api=options.decode_ab_api,
        workload=Workload(options.decode_ab_workload, float(options.decode_ab_spread), dataset),
    )


def _numbers(name: str, text: str, count: int = 0) -> list[float]:
    try:
        values = [float(part) for part in text.split(",")]
    except ValueError as e:
        raise UsageError(f"{name} {text!r}: numbers separated by commas are needed") from e
    if count and len(values) != count:
        raise UsageError(f"{name} {text!r}: {count} numbers are needed")
    return values
