"""The proxy passes everything on in fair weather, and does what it says in foul."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import requests

from app.chaos.weather import FAIR, Proxy, Weather

PARTS = [b"data: %d\n\n" % n for n in range(20)]


class Streamer(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(sum(map(len, PARTS))))
        self.end_headers()
        for part in PARTS:
            self.wfile.write(part)
            time.sleep(0.002)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Streamer)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    with Proxy(server.server_address[1]) as made:
        yield made
    server.shutdown()
    server.server_close()


def fetch(proxy: Proxy, timeout_s: float = 10.0) -> requests.Response:
    with requests.Session() as session:
        session.trust_env = False
        return session.get(proxy.url, timeout=timeout_s)


def took_s(proxy: Proxy) -> float:
    began = time.monotonic()
    assert fetch(proxy).content == b"".join(PARTS)
    return time.monotonic() - began


def test_fair_weather_changes_nothing(proxy: Proxy) -> None:
    assert fetch(proxy).content == b"".join(PARTS)


@pytest.mark.parametrize(
    ("weather", "least_s"), [(Weather(delay_s=0.3), 0.3), (Weather(loss=1.0), 0.4), (Weather(bytes_per_s=500), 0.4)]
)
def test_a_slow_network_delays_and_keeps_the_order(proxy: Proxy, weather: Weather, least_s: float) -> None:
    proxy.weather = weather
    assert took_s(proxy) > least_s


def test_a_storm_of_refusals_is_503(proxy: Proxy) -> None:
    proxy.weather = Weather(refuse=True)
    assert fetch(proxy).status_code == 503
    proxy.weather = FAIR
    assert fetch(proxy).status_code == 200


@pytest.mark.parametrize("weather", [Weather(rubbish=True), Weather(resets=1.0)])
def test_rubbish_and_resets_reach_the_client_as_such(proxy: Proxy, weather: Weather) -> None:
    proxy.weather = weather
    with pytest.raises(requests.RequestException):
        fetch(proxy, timeout_s=1)


def test_one_stream_stands_still_while_another_runs(proxy: Proxy) -> None:
    proxy.weather = Weather(stall=True)
    still = threading.Thread(target=fetch, args=(proxy,))
    still.start()
    time.sleep(0.2)
    assert fetch(proxy).content == b"".join(PARTS)
    assert still.is_alive()
    proxy.weather = FAIR
    still.join(10)
    assert not still.is_alive()
