"""The lab's part of Locust's web page: a tab of live figures, a page of its own, downloads of the raw record."""

from __future__ import annotations

from loadtest.webui.extension import extend

__all__ = ["extend"]
