"""Health probes of the services, with Python's own HTTP client since an image may have no curl."""

from __future__ import annotations

import urllib.error
import urllib.request

# SGLang's own health answer may take 20 s by design.
TIMEOUT_S = 25.0


def healthy(url: str) -> bool:
    """Whether a GET gives 200."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=TIMEOUT_S) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False
