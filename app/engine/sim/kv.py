"""Paged KV memory and the prefix cache that lives in what running requests leave free."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence


class PagedKv:
    """Pages of page_size tokens. Cached prefix pages are kept until the space is needed, least recently used first."""

    def __init__(self, capacity_tokens: int, page_size: int) -> None:
        self.page_size = page_size
        self.pages = max(1, capacity_tokens // page_size)
        self.used = 0
        self._cached: OrderedDict[int, None] = OrderedDict()
        self.looked_up_tokens = 0
        self.hit_tokens = 0

    @property
    def free(self) -> int:
        """Pages no running request holds; cached ones count, they can be evicted."""
        return self.pages - self.used

    @property
    def cached(self) -> int:
        """Pages the prefix cache holds."""
        return len(self._cached)

    @property
    def hit_rate(self) -> float:
        """Share of looked-up prompt tokens found in the cache since the last flush."""
        return self.hit_tokens / self.looked_up_tokens if self.looked_up_tokens else 0.0

    def pages_for(self, tokens: int) -> int:
        """Pages that hold so many tokens."""
        return -(-tokens // self.page_size)

    def take(self, pages: int) -> bool:
        """Gives pages to a request, evicting cached ones if need be; False, and nothing taken, without room."""
        if pages > self.free:
            return False
        self.used += pages
        while self.used + len(self._cached) > self.pages:
            self._cached.popitem(last=False)
        return True

    def give_back(self, pages: int) -> None:
        """Takes pages back from a request."""
        self.used -= pages

    def match(self, prompt: Sequence[str]) -> int:
        """Tokens of the longest cached prefix, whole pages; the last token is always computed, as in SGLang."""
        hit = 0
        for key in self._keys(prompt[: len(prompt) - 1]):
            if key not in self._cached:
                break
            self._cached.move_to_end(key)
            hit += self.page_size
        self.looked_up_tokens += len(prompt)
        self.hit_tokens += hit
        return hit

    def remember(self, prompt: Sequence[str]) -> None:
        """Caches a prompt's whole pages, as far as there is room beside what is used."""
        for key in self._keys(prompt):
            self._cached[key] = None
            self._cached.move_to_end(key)
        while self._cached and self.used + len(self._cached) > self.pages:
            self._cached.popitem(last=False)

    def forget(self) -> None:
        """Empties the cache and its statistics."""
        self._cached.clear()
        self.looked_up_tokens = self.hit_tokens = 0

    def _keys(self, prompt: Sequence[str]) -> list[int]:
        keys, key = [], 0
        for start in range(0, len(prompt) - self.page_size + 1, self.page_size):
            key = hash((key, tuple(prompt[start : start + self.page_size])))
            keys.append(key)
        return keys
