"""Requests that keep a service decoding while something is looked at."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any

import requests

from app.answer import NoHttpError, session
from app.engine import Endpoints
from app.errors import NotReadyError
from loadtest.client.key import authorization

BEGIN_S = 45.0


@contextmanager
def kept_busy(endpoints: Endpoints, prompts: Sequence[str], tokens: int) -> Iterator[None]:
    """All prompts have begun to be answered when the block begins; what is left of the answers is dropped after it.

    tokens: length of each answer, enough for the block. NotReadyError when one does not begin within `BEGIN_S`.
    """
    with ExitStack() as open_answers, ThreadPoolExecutor(len(prompts)) as pool:
        held = [pool.submit(_begun, endpoints, prompt, tokens) for prompt in prompts]
        faults = []
        for future in held:
            try:
                # The future keeps its iterator: forgotten, that closes the connection, and the server drops the answer.
                open_answers.callback(future.result()[0].close)
            except NotReadyError as e:
                faults.append(e)
        if faults:
            raise faults[0]
        yield


def _begun(endpoints: Endpoints, prompt: str, tokens: int) -> tuple[requests.Response, Iterator[bytes]]:
    url = f"{endpoints.router_url}/v1/completions"
    body: dict[str, Any] = {"model": endpoints.model, "prompt": prompt, "max_tokens": tokens, "min_tokens": tokens}
    body |= {"ignore_eos": True, "temperature": 0, "stream": True}
    try:
        answer = session().post(url, json=body, headers=authorization(os.environ), timeout=BEGIN_S, stream=True)
        if answer.status_code != requests.codes.ok:
            raise NotReadyError(f"{url} answered HTTP {answer.status_code}: {answer.text[:200]}")
        chunks = answer.iter_content(1)
        next(chunks)
    except NoHttpError as e:
        raise NotReadyError(str(e)) from e
    except (requests.RequestException, StopIteration) as e:
        raise NotReadyError(f"{url} did not begin an answer within {BEGIN_S:.0f} s ({e!r})") from e
    return answer, chunks
