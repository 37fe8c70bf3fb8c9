"""The longest stall of a transfer, measured from outside of the transport."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Self

INTERVAL_S = 0.005
"""Sampling interval, and so the resolution: a fraction of the shortest stall that a user notices."""


class StallMeter:
    """A context manager that measures the longest time in which no payload landed, from the first landing on."""

    def __init__(self, landed_bytes: Callable[[], int]) -> None:
        """`landed_bytes` returns the payload that has landed so far."""
        self.longest_s = 0.0
        self._landed_bytes = landed_bytes
        self._bytes = 0
        self._changed_at: float | None = None
        self._timer: asyncio.TimerHandle | None = None

    def take_longest_s(self) -> float:
        """Return the longest time since the last call."""
        longest_s, self.longest_s = self.longest_s, 0.0
        return longest_s

    def __enter__(self) -> Self:
        self._bytes = self._landed_bytes()  # what has landed before, such as an offer, is no landing
        self._sample()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _sample(self) -> None:
        loop = asyncio.get_running_loop()
        now, landed_bytes = loop.time(), self._landed_bytes()
        if landed_bytes != self._bytes:
            if self._changed_at is not None:
                self.longest_s = max(self.longest_s, now - self._changed_at)
            self._bytes, self._changed_at = landed_bytes, now
        self._timer = loop.call_later(INTERVAL_S, self._sample)
