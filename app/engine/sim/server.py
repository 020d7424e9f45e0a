"""SGLang's HTTP surface over a backend: the simulated engine or the clocked mock."""

from __future__ import annotations

import hmac
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Protocol

from app.engine.sim.generation import API_OF_PATH, Generation, parse_generation
from app.engine.sim.metrics import Counters, Gauges, exposition
from app.engine.sim.protocol import Connection, Request
from app.engine.sim.streams import error_body
from app.engine.sim.truth import Truth
from app.errors import UsageError


class Backend(Protocol):
    """What answers generation requests."""

    counters: Counters

    @property
    def resyncs(self) -> int:
        """How often the process fell so far behind its plan that time was taken as lost."""
        ...

    def accept(self, generation: Generation, connection: Connection, received_ns: int) -> None:
        """Starts an answer; UsageError when it cannot be served."""
        ...

    def gauges(self) -> Gauges:
        """State of this moment."""
        ...

    def flush(self) -> bool:
        """Empties the prefix cache; False while requests run."""
        ...

    def abort(self, rid: str, everything: bool) -> None:
        """Ends one request, or all, with finish_reason abort."""
        ...


@dataclass(slots=True)
class Server:
    """Routes requests. identity: the `decode_ab` object of /server_info; settings: server arguments beside it."""

    role: str
    model: str
    backend: Backend
    truth: Truth
    identity: Mapping[str, Any]
    settings: Mapping[str, Any]
    max_model_len: int
    key: str = field(default="", repr=False)
    ready_ns: int = 0
    stopping: bool = False
    started_s: float = field(default_factory=time.time)

    def handle(self, request: Request, connection: Connection) -> None:
        """Answers one request."""
        if not self._may(request):
            connection.reply(HTTPStatus.UNAUTHORIZED, {"error": "Unauthorized"})
            return
        api = API_OF_PATH.get(request.path)
        if api is not None:
            if request.method != "POST":
                connection.reply(HTTPStatus.METHOD_NOT_ALLOWED, {"detail": "Method Not Allowed"})
                return
            try:
                generation = parse_generation(api, request.body, request.headers, self.model)
                self.backend.accept(generation, connection, request.received_ns)
            except UsageError as e:
                connection.reply(HTTPStatus.BAD_REQUEST, error_body(str(e), "BadRequestError", 400))
            return
        answer = self._routes().get(request.path)
        if answer is None:
            connection.reply(HTTPStatus.NOT_FOUND, {"detail": "Not Found"})
        else:
            answer(request, connection)

    def _may(self, request: Request) -> bool:
        # As SGLang: probes and scrapers need no key.
        if not self.key or request.path.startswith(("/health", "/metrics")):
            return True
        return hmac.compare_digest(request.headers.get("authorization", "").encode(), f"Bearer {self.key}".encode())

    def _routes(self) -> dict[str, Any]:
        return {
            "/health": self._health,
            "/health_generate": self._health,
            "/ready": self._health,
            "/server_info": self._server_info,
            "/get_server_info": self._server_info,
            "/model_info": self._model_info,
            "/get_model_info": self._model_info,
            "/v1/models": self._models,
            "/v1/loads": self._loads,
            "/get_load": self._loads,
            "/metrics": self._metrics,
            "/flush_cache": self._flush,
            "/abort_request": self._abort,
            "/abort": self._abort,
            "/truth": self._truth,
            "/truth/clear": self._clear_truth,
        }

    def _health(self, request: Request, connection: Connection) -> None:
        ready = time.monotonic_ns() >= self.ready_ns and not self.stopping
        connection.reply(HTTPStatus.OK if ready else HTTPStatus.SERVICE_UNAVAILABLE, "")

    def _server_info(self, request: Request, connection: Connection) -> None:
        lag: dict[str, float] = {f"lag_p{q}_ms": self.truth.lag.quantile_ms(q / 100) for q in (50, 99)}
        lag |= {"late_events": self.truth.lag.late, "resyncs": self.backend.resyncs}
        state = {"last_gen_throughput": self.backend.gauges().gen_throughput}
        info = {"SIMULATED": True, "version": "0.5.17-simulated", "status": "ready", "startup_time": self.started_s}
        connection.reply(
            HTTPStatus.OK,
            {**self.settings, **info, "internal_states": [state], "decode_ab": {**self.identity, **lag}},
        )

    def _model_info(self, request: Request, connection: Connection) -> None:
        # A path would send the router looking for its tokenizer on the network.
        connection.reply(HTTPStatus.OK, {"model_path": "", "tokenizer_path": "", "is_generation": True})

    def _models(self, request: Request, connection: Connection) -> None:
        card = {
            "id": self.model,
            "object": "model",
            "created": int(self.started_s),
            "owned_by": "sglang",
            "root": self.model,
        }
        connection.reply(
            HTTPStatus.OK, {"object": "list", "data": [card | {"parent": None, "max_model_len": self.max_model_len}]}
        )

    def _loads(self, request: Request, connection: Connection) -> None:
        g = self.backend.gauges()
        load = {
            "dp_rank": 0,
            "num_running_reqs": g.running,
            "num_waiting_reqs": g.queued,
            "num_used_tokens": g.used_tokens,
            "num_total_tokens": g.used_tokens,
            "max_total_num_tokens": g.capacity_tokens,
            "token_usage": g.token_usage,
            "gen_throughput": g.gen_throughput,
            "cache_hit_rate": g.cache_hit_rate,
        }
        if request.path == "/get_load":
            old = {"num_reqs": g.running + g.queued, "num_waiting_reqs": g.queued, "num_tokens": g.used_tokens}
            connection.reply(HTTPStatus.OK, [{"dp_rank": 0} | old])
            return
        connection.reply(HTTPStatus.OK, {"timestamp": time.time(), "version": "0.5.17-simulated", "loads": [load]})

    def _metrics(self, request: Request, connection: Connection) -> None:
        lag = self.truth.lag
        extra = {f"send_lag_p{q}_ms": lag.quantile_ms(q / 100) for q in (50, 99)}
        extra |= {"events_total": lag.count, "late_events_total": lag.late, "resyncs_total": self.backend.resyncs}
        text = exposition(self.role, self.model, self.backend.counters, self.backend.gauges(), extra)
        connection.reply(HTTPStatus.OK, text, "text/plain; version=0.0.4; charset=utf-8")

    def _flush(self, request: Request, connection: Connection) -> None:
        if self.backend.flush():
            connection.reply(HTTPStatus.OK, "Cache flushed.\n")
        else:
            connection.reply(HTTPStatus.BAD_REQUEST, "Flush cache failed: there are running or waiting requests.\n")

    def _abort(self, request: Request, connection: Connection) -> None:
        import json

        try:
            asked = json.loads(request.body or b"{}")
        except ValueError:
            connection.reply(HTTPStatus.BAD_REQUEST, error_body("body is not JSON", "BadRequestError", 400))
            return
        self.backend.abort(str(asked.get("rid") or ""), bool(asked.get("abort_all")))
        connection.reply(HTTPStatus.OK, "")

    def _truth(self, request: Request, connection: Connection) -> None:
        if not self.truth.keep:
            connection.reply(
                HTTPStatus.NOT_FOUND,
                error_body("no truth is kept; start with --truth FILE or --truth memory", "NotFound", 404),
            )
            return
        since = request.query.get("since", ["0"])[0]
        rid = request.query.get("rid", [None])[0]
        records = self.truth.to_json(int(since) if since.isdigit() else 0, rid)
        connection.reply(HTTPStatus.OK, {"SIMULATED": True, "records": records})

    def _clear_truth(self, request: Request, connection: Connection) -> None:
        self.truth.records.clear()
        connection.reply(HTTPStatus.OK, "")
