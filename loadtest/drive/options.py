"""Options of the load driver on Locust's command line and in its web form, and the order they amount to."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path
from typing import Any

import gevent

from app.errors import UsageError
from loadtest.drive.driver import AS_DEPLOYED
from loadtest.drive.reach import await_servers
from loadtest.order import StartOrder, Workload
from loadtest.plan import Lengths, Plan, WindowRules

VARIANTS = Path(__file__).resolve().parents[2] / "kernels" / "variants"


def add_options(parser: Any) -> None:
    """Adds the lab's options; all of them can be changed in the web form before each run."""
    # Whoever reaches the page can make this process read and write files; Locust itself would open it to every network.
    parser.set_defaults(web_host="127.0.0.1")
    add = parser.add_argument  # an argument of a group would not be shown in the form
    add("--decode-ab-order", default="", help="order of one start (JSON file); all options below are then ignored")
    add(
        "--decode-ab-plan",
        default="",
        choices=["", *plans()],
        help="plan whose levels, lengths and window are followed",
    )
    add("--decode-ab-block", type=int, default=0, help="block of that plan, from 0")
    add(
        "--decode-ab-variant",
        default=AS_DEPLOYED,
        choices=[AS_DEPLOYED, *variants()],
        help="what decode must be running",
    )
    add("--decode-ab-concurrencies", default="1,8", help="levels in visiting order, for example 1,8,48,64,80,96")
    add("--decode-ab-lengths", default="1024,256", help="prompt and output tokens of every request")
    add("--decode-ab-window", default="10,60", help="settle and window seconds (engine time)")
    add(
        "--decode-ab-decode-only",
        default="no",
        choices=["no", "yes"],
        help="fresh requests at each level, whose answers outlast its window",
    )
    add("--decode-ab-model", default="default", help="served model name")
    add("--decode-ab-api", default="completions", choices=["completions", "chat"], help="endpoint")
    add("--decode-ab-seed", default="0", help="seed of the prompt list")
    add("--decode-ab-decode-url", default="", help="decode server, to read its counters and flush its cache")
    add("--decode-ab-prefill-url", default="", help="prefill server, likewise")
    add("--decode-ab-time-scale", type=float, default=1.0, help="engine seconds per wall second (simulated engine)")
    add("--decode-ab-workload", default="fixed", choices=["fixed", "uniform", "lognormal", "dataset"], help="lengths")
    add("--decode-ab-spread", type=float, default=0.0, help="spread of uniform or lognormal lengths, 0 to 1")
    add("--decode-ab-dataset", default="", help='JSONL of {"prompt", "output_tokens"}')
    add(
        "--decode-ab-rate", type=float, default=0.0, help="open loop: requests a second (engine time); 0 is closed loop"
    )
    add(
        "--decode-ab-turns", type=int, default=1, help="requests of one conversation, each with the last as its opening"
    )
    add(
        "--decode-ab-wait",
        type=float,
        default=5.0,
        help="seconds to wait for servers that do not answer yet, or with faults alone; not with an order",
    )
    add("--decode-ab-out", default="runs/locust", help="folder for records of runs without an order")


def plans(runs: Path = Path("runs")) -> list[str]:
    """Plans of the campaigns in the runs folder, newest first."""
    return [str(path) for path in sorted(runs.glob("*/plan.json"), reverse=True) if not path.parent.is_symlink()]


def variants(folder: Path = VARIANTS) -> list[str]:
    """Names of the variant files."""
    return sorted(path.stem for path in folder.glob("*.yaml"))


def order_from(environment: Any) -> StartOrder:
    """The order file, or an order made of the options, whose servers answer.

    UsageError says which option cannot be, NotReadyError which server gives no answer. Whoever writes an order watches
    its servers.
    """
    options = environment.parsed_options
    if options.decode_ab_order:
        return StartOrder.read(Path(options.decode_ab_order))
    wait_s = float(options.decode_ab_wait)
    if not 0 <= wait_s < math.inf:
        raise UsageError(f"--decode-ab-wait {wait_s:g}: seconds from 0 on are needed, for example 300")
    order = _order_of(environment)
    await_servers(order, wait_s, gevent.sleep)
    return order


def _order_of(environment: Any) -> StartOrder:
    options = environment.parsed_options
    if not environment.host:
        raise UsageError("no host; give --host http://router:port or fill in the form's Host field")
    dataset = Path(options.decode_ab_dataset) if options.decode_ab_dataset else None
    common: dict[str, Any] = {
        "variant": options.decode_ab_variant,
        "control": "",
        "router_url": environment.host,
        "out": Path(options.decode_ab_out) / time.strftime("%Y%m%d-%H%M%S"),
        "model": options.decode_ab_model,
        "decode_url": options.decode_ab_decode_url,
        "prefill_url": options.decode_ab_prefill_url,
        "api": options.decode_ab_api,
        "workload": Workload(
            options.decode_ab_workload,
            float(options.decode_ab_spread),
            dataset,
            float(options.decode_ab_rate) or None,
            int(options.decode_ab_turns),
        ),
    }
    return StartOrder(**common, **(_from_plan(options) if options.decode_ab_plan else _from_fields(options)))


def _from_plan(options: Any) -> dict[str, Any]:
    path = Path(options.decode_ab_plan)
    try:
        plan = Plan.from_json(json.loads(path.read_text()))
    except (OSError, ValueError) as e:
        raise UsageError(f"{path}: no plan ({e}); choose one of {', '.join(plans()) or 'none'}") from e
    block = int(options.decode_ab_block)
    if not 0 <= block < plan.blocks:
        raise UsageError(f"block {block}: the plan has blocks 0 to {plan.blocks - 1}")
    start = next((s for s in plan.starts(block) if s.variant == options.decode_ab_variant), plan.starts(block)[0])
    return {
        "block": block,
        "start": start.index,
        "concurrencies": start.concurrencies,
        "prompt_seed": plan.prompt_seed(block),
        "lengths": plan.lengths,
        "window": plan.window,
        "time_scale": plan.time_scale,
    }


def _from_fields(options: Any) -> dict[str, Any]:
    prompt, output = _numbers("lengths", options.decode_ab_lengths, 2)
    settle, window = _numbers("window", options.decode_ab_window, 2)
    return {
        "block": 0,
        "start": 0,
        "concurrencies": tuple(int(c) for c in _numbers("concurrencies", options.decode_ab_concurrencies)),
        "prompt_seed": options.decode_ab_seed,
        "lengths": Lengths(int(prompt), int(output)),
        "window": WindowRules(settle, window, decode_only=options.decode_ab_decode_only == "yes"),
        "time_scale": float(options.decode_ab_time_scale),
    }


def _numbers(name: str, text: str, count: int = 0) -> list[float]:
    try:
        values = [float(part) for part in text.split(",")]
    except ValueError as e:
        raise UsageError(f"{name} {text!r}: numbers separated by commas are needed") from e
    if not all(map(math.isfinite, values)):
        raise UsageError(f"{name} {text!r}: every number must be finite")
    if count and len(values) != count:
        raise UsageError(f"{name} {text!r}: {count} numbers are needed")
    return values
