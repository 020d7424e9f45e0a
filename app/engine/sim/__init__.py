"""SIMULATED SGLang engine: SGLang's HTTP surface and PD protocol with calibrated timing, for machines without a GPU.

Clocked mock (for checking a load client): `python -m app.engine.sim --role single --port 30000 --script builtin`. Every request is
answered by the fixed schedule of a shape (`shapes.BUILTIN` lists names, `shapes.Shape` every setting). A request chooses its shape by
header `x-decode-ab-shape: NAME`, body field `"decode_ab_shape": "NAME"`, or a prompt whose first word is `@shape:NAME`; else it gets
the script's `default` (`plain`) or, in order of arrival, its `sequence`. `--script FILE` (YAML or JSON) sets these and adds shapes:

    base: {ttft_ms: 30, itl_ms: 10}          # for all shapes, the built-in ones too
    default: plain
    shapes:
      late_error: {like: error_event, fail_after: 20}

Truth: `GET /truth` (`?since=INDEX`, `?rid=ID`; `/truth/clear` empties it) gives a record per request: rid (body `rid` or header
x-request-id), prompt_sha256 (of the prompt's words joined by one space), user, shape, prompt_tokens, requested_tokens, received_ns,
outcome, and per content event planned_ns, sent_ns (CLOCK_MONOTONIC) and tokens. `--truth FILE` also writes an NPZ when it stops.
A text prompt has one token a whitespace-separated word; a chat four more.
"""
