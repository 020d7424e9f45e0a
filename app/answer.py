"""What services answer over HTTP: read within a size and a time, refused in one line when it is not what was asked."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPResponse
from typing import Any

import requests
from requests.adapters import HTTPAdapter
from urllib3 import HTTPConnectionPool
from urllib3.connection import HTTPConnection

from app.errors import NotReadyError
from loadtest.client.key import authorization, without_key

# SGLang's metrics take some 100 KB, its description of itself less.
LIMIT_ANSWER_BYTES = 16 * 1024 * 1024
_PIECE_BYTES = 64 * 1024
# A container that is gone refuses no connection; one that is there takes it at once, or when asked a third time.
_CONNECT_S = 5.0


@dataclass(frozen=True, slots=True)
class Answer:
    """The whole answer to one request, with what is not UTF-8 replaced and without the key."""

    url: str
    status: int
    text: str

    def object(self) -> dict[str, Any]:
        """The JSON object in the body; NotReadyError when it is none."""
        try:
            found = json.loads(self.text)
        # RecursionError: nested too deeply for the parser.
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise NotReadyError(f"{self.url} answered what is no JSON object: {self.text[:80]!r}")
        return found


def get(url: str, timeout_s: float = 30.0) -> Answer:
    """The answer to a GET; NotReadyError when there is none within the time."""
    return _ask("GET", url, None, timeout_s)


def post(url: str, body: Mapping[str, Any], timeout_s: float) -> Answer:
    """The answer to a POST of JSON; NotReadyError when there is none within the time."""
    return _ask("POST", url, body, timeout_s)


def session() -> requests.Session:
    """A session that takes no proxy from the environment: every service is on this host or a private network.

    What begins an answer unlike HTTP ends it at once, by `NoHttpError`.
    """
    made = requests.Session()
    made.trust_env = False
    made.mount("http://", _Adapter())
    return made


class NoHttpError(requests.RequestException):
    """Something answers that speaks no HTTP; the message is a line for a user."""


class _RubbishError(ValueError):
    """An answer begins with bytes that begin none of HTTP; a kind that urllib3 takes for none of its own."""


class _Response(HTTPResponse):
    def begin(self) -> None:
        """The library's own, which waits for the end of a line that rubbish need not have."""
        # Whoever has said nothing yet is waited for here, for the whole time.
        if not b"HTTP/".startswith(first := self.fp.peek(5)[:5]):
            raise _RubbishError(f"it begins with {first!r}")
        super().begin()


class _Connection(HTTPConnection):
    response_class = _Response

    def __str__(self) -> str:
        return _address(self.host, self.port)


class _Pool(HTTPConnectionPool):
    ConnectionCls = _Connection

    def __str__(self) -> str:
        return _address(self.host, self.port)


class _Adapter(HTTPAdapter):
    def init_poolmanager(self, *args: Any, **options: Any) -> None:
        super().init_poolmanager(*args, **options)
        self.poolmanager.pool_classes_by_scheme = {"http": _Pool}

    def send(self, request: requests.PreparedRequest, *args: Any, **options: Any) -> requests.Response:
        """The library's own, whose callers look for its own kind of fault."""
        try:
            return super().send(request, *args, **options)
        except _RubbishError as e:
            said = f"{request.url} answered what is no HTTP ({e}); see what listens there, or stands before it"
            raise NoHttpError(said, request=request) from e


def _address(host: str, port: int | None) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _ask(method: str, url: str, body: Mapping[str, Any] | None, timeout_s: float) -> Answer:
    deadline = time.monotonic() + timeout_s
    try:
        options: dict[str, Any] = {"headers": authorization(os.environ), "stream": True}
        options["timeout"] = min(timeout_s, _CONNECT_S), timeout_s
        with session() as made, made.request(method, url, json=body, **options) as response:
            return Answer(url, response.status_code, without_key(_whole(response, deadline), os.environ))
    except NoHttpError as e:
        raise NotReadyError(str(e)) from e
    # ValueError: an address that cannot be, and an encoding that the body does not keep to.
    except (requests.RequestException, ValueError) as e:
        raise NotReadyError(f"no answer from {url} within {timeout_s:.0f} s ({e})") from e


def _whole(response: requests.Response, deadline: float) -> str:
    data = bytearray()
    for piece in response.iter_content(_PIECE_BYTES):
        data += piece
        if len(data) > LIMIT_ANSWER_BYTES:
            raise NotReadyError(f"{response.url} answers with more than {LIMIT_ANSWER_BYTES // 2**20} MiB")
        # The client's own limit holds for each read, and a body may drip.
        if time.monotonic() > deadline:
            raise NotReadyError(f"{response.url} did not end its answer in time")
    return data.decode("utf-8", "replace")
