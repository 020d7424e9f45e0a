"""The same start over several Locust workers: the master conducts, each worker carries its share of the slots.

Raw rows stay with the worker until the end and come together as files in the order's folder, which all must share.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import gevent
import pyarrow as pa
import pyarrow.parquet as pq

from app.errors import LoadError
from loadtest.client.carrier import Carrier
from loadtest.client.recorder import Sent
from loadtest.client.rows import ROWS, write_table
from loadtest.drive.feed import feed_locust, look_at
from loadtest.order import StartOrder

ORDER, SEEN, WRITTEN = "decode_ab_order", "decode_ab_seen", "decode_ab_written"
REPORT_S = 0.1
BEGIN_S = 30.0
FINISH_S = 600.0


class Carriers:
    """The workers' carriers, seen from the master: one sender to the driver."""

    def __init__(self, runner: Any, order: StartOrder) -> None:
        self._runner, self._order = runner, order
        self._levels = 0
        self._seen: dict[str, Mapping[str, int]] = {}
        self._health: dict[str, list[dict[str, Any]]] = {}
        self._folders: dict[str, Path] = {}
        for name, listener in ((SEEN, self._take_seen), (WRITTEN, self._take_written)):
            runner.custom_messages.pop(name, None)
            runner.register_message(name, listener)

    def begin(self) -> None:
        """Gives each worker its share of the order; LoadError when one does not answer."""
        workers = sorted(self._runner.clients)
        if not workers:
            raise LoadError("no worker is connected; start locust --worker first")
        for number, client in enumerate(workers):
            share = {"order": self._order.to_json(), "worker": number, "workers": len(workers)}
            self._runner.send_message(ORDER, {"do": "begin", **share}, client_id=client)
        self._wait(lambda: len(self._seen) == len(workers), BEGIN_S, "a worker did not take up the order")

    def set_level(self, concurrency: int) -> None:
        """Begins a level on every worker."""
        self._levels += 1
        self._tell({"do": "level", "concurrency": concurrency, "number": self._levels})

    def close(self) -> None:
        """Sends nothing more."""
        self._tell({"do": "close"})

    def cut(self) -> None:
        """Ends what is in flight."""
        self._tell({"do": "cut"})

    def look(self) -> tuple[int, int]:
        """Sums of the workers' last reports; output counts only from workers that have begun the present level."""
        reports = list(self._seen.values())
        streaming = sum(r["streaming"] for r in reports if r["number"] == self._levels)
        return sum(r["in_flight"] for r in reports), streaming

    def finish(self, folder: Path, spans: Sequence[tuple[int, int]]) -> list[dict[str, Any]]:
        """Brings the workers' rows together; of each span the health of the worst worker."""
        self._tell({"do": "finish", "spans": [list(span) for span in spans]})
        self._wait(lambda: len(self._folders) == len(self._seen), FINISH_S, "a worker did not write its rows")
        missing = [str(path) for path in self._folders.values() if not (path / ROWS).exists()]
        if missing:
            raise LoadError(f"rows of workers are not here: {', '.join(missing)}; copy them or share the folder")
        table = pa.concat_tables([pq.read_table(path / ROWS) for path in self._folders.values()])
        write_table(folder, table.sort_by("sent_ns"))
        return [worst(list(own)) for own in zip(*self._health.values(), strict=True)]

    def _tell(self, data: Mapping[str, Any]) -> None:
        for client in self._seen:
            self._runner.send_message(ORDER, dict(data), client_id=client)

    def _wait(self, ready: Any, limit_s: float, what: str) -> None:
        deadline = time.monotonic() + limit_s
        while not ready():
            if time.monotonic() > deadline:
                raise LoadError(f"{what} within {limit_s:g} s; look at the worker's log")
            gevent.sleep(0.05)

    def _take_seen(self, environment: Any, msg: Any, **kwargs: Any) -> None:
        self._seen[msg.node_id] = msg.data

    def _take_written(self, environment: Any, msg: Any, **kwargs: Any) -> None:
        self._health[msg.node_id] = msg.data["health"]
        self._folders[msg.node_id] = Path(msg.data["folder"])


class Worker:
    """The worker's side: follows the master's messages, lets its users send, reports ten times a second."""

    def __init__(self, runner: Any) -> None:
        self._runner = runner
        self._number = 0
        self.carrier: Carrier | None = None
        self._share = (0, 1)
        runner.register_message(ORDER, self._obey, concurrent=True)

    def send_next(self) -> bool:
        """One request of one user; False when the run is over."""
        return self.carrier is not None and self.carrier.send_next()

    def _obey(self, environment: Any, msg: Any, **kwargs: Any) -> None:
        data = msg.data
        if data["do"] == "begin":
            self._begin(data)
        elif self.carrier is not None:
            carrier = self.carrier
            if data["do"] == "level":
                carrier.set_level(data["concurrency"])
                self._number = data["number"]
            elif data["do"] == "finish":
                self._finish(carrier, data["spans"])
            else:
                {"close": carrier.close, "cut": carrier.cut}[data["do"]]()

    def _begin(self, data: Mapping[str, Any]) -> None:
        self._share, self._number = (data["worker"], data["workers"]), 0
        self.carrier = carrier = Carrier(StartOrder.from_json(data["order"]), *self._share)
        carrier.on_sent = self._feed
        carrier.begin()
        gevent.spawn(self._report, carrier)

    def _feed(self, sent: Sent) -> None:
        if sent.exchange.error_kind != "cut":
            feed_locust(self._runner.environment, sent, look_at(sent))

    def _finish(self, carrier: Carrier, spans: Sequence[Sequence[int]]) -> None:
        self.carrier = None
        folder = carrier.order.out.resolve() / f"worker-{self._share[0]}"
        health = carrier.finish(folder, [(begin, end) for begin, end in spans])
        self._runner.send_message(WRITTEN, {"health": health, "folder": str(folder)})

    def _report(self, carrier: Carrier) -> None:
        while self.carrier is carrier:
            in_flight, streaming = carrier.look()
            report = {"in_flight": in_flight, "streaming": streaming, "number": self._number}
            self._runner.send_message(SEEN, report)
            gevent.sleep(REPORT_S)


def worst(healths: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Of several clients' health the largest of each figure; null when one of them has none."""
    names = healths[0]
    return {name: None if any(h[name] is None for h in healths) else max(h[name] for h in healths) for name in names}
