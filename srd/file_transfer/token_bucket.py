"""A limit for the rate at which a sender gives chunks to the transport: a token bucket."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable


class TokenBucket:
    """Bytes flow in at `rate_bps`, and up to `burst_bytes` of them are kept while nothing is sent.

    At first there are none: a file of two chunks takes as long as its bytes at that rate, and not half of it.
    """

    def __init__(self, rate_bps: float, *, burst_bytes: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._bytes_per_s = rate_bps / 8
        self._burst_bytes = burst_bytes
        self._clock = clock
        self._tokens = 0.0
        self._counted_at = clock()

    def delay_s(self, size_bytes: int) -> float:
        """Take tokens; return how long to wait before these bytes may be sent. What is taken in advance is a debt."""
        now = self._clock()
        earned = (now - self._counted_at) * self._bytes_per_s
        self._tokens = min(self._tokens + earned, self._burst_bytes) - size_bytes
        self._counted_at = now
        return max(-self._tokens / self._bytes_per_s, 0.0)

    async def take(self, size_bytes: int) -> None:
        """Wait until these bytes may be sent."""
        if delay_s := self.delay_s(size_bytes):
            await asyncio.sleep(delay_s)
