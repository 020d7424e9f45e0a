"""SIMULATED SGLang engine: SGLang's HTTP surface and PD protocol with calibrated timing, for machines without a GPU.

`python -m app.engine.sim --role prefill|decode|single ...` is one process (`--help` lists the options). Timing
follows the autotune configs found in --kernel-file and the selector, never the variant's name. A token of a text
prompt is one whitespace-separated word; a chat has four more. Time runs --time-scale times faster than life.

Clocked mock, for checking a load client: `--role single --script builtin`. Every request is answered by the fixed
schedule of a shape (names in `shapes.BUILTIN`, settings in `shapes.Shape`). It chooses one by header `x-decode-ab-
shape: NAME`, by body field `"decode_ab_shape": "NAME"`, or by a prompt whose first word is `@shape:NAME` (the last
two also pass the router); else it gets the script's `default` (`plain`) or, in order of arrival, its `sequence`.
`--script FILE` sets these:

    base: {ttft_ms: 30, itl_ms: 10}          # settings of all shapes, the built-in ones too
    default: plain
    shapes:
      late_error: {like: error_event, fail_after: 20}

Truth: with --truth FILE (an NPZ, written when it stops) or --truth memory, and always in the mock, `GET /truth`
(`?since=INDEX`, `?rid=ID`; `/truth/clear` empties it) gives a record per request: rid (body `rid` or header
x-request-id), prompt_sha256 (of the prompt's words joined by one space), user, shape, prompt_tokens,
requested_tokens, received_ns, outcome, and per content event planned_ns, sent_ns (CLOCK_MONOTONIC, just before the
bytes went to the kernel) and tokens. `/server_info` says how late tokens left: decode_ab.lag_p50_ms, lag_p99_ms.

What is simpler than life: a decode service asks prefill for KV over one JSON-lines connection instead of NIXL;
transfers do not contend; gauges are of the moment, not of the last log line; a prefill that dies is noticed at once,
not by heartbeat.
"""
