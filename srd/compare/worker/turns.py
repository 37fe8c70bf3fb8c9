"""Who may post next to a peer: flows take turns, block by block, and little is posted ahead of the window.

A peer sends in the order of posting, so what is posted delays every flow that comes later. TCP's flows have connections
of their own, between which the kernel is fair; this is the same for flows over one peer.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Final

LOOK_S: Final = 0.005
"""How often the window is looked at."""


class Turns:
    """The flows to one peer."""

    def __init__(self, cwnd_bytes: Callable[[], int], *, block_bytes: int) -> None:
        """`cwnd_bytes` returns the peer's congestion window."""
        self._cwnd_bytes = cwnd_bytes
        self._block_bytes = block_bytes
        self._posted_bytes = 0
        self._limit_bytes = 0
        self._look_at = 0.0
        self._waiting = deque[tuple[asyncio.Future[None], int]]()

    def _limit(self) -> int:
        """Return how much may be posted: the window, which stays full, and a block or a quarter more."""
        now = time.monotonic()
        if now >= self._look_at:
            self._look_at = now + LOOK_S
            window_bytes = self._cwnd_bytes()
            self._limit_bytes = window_bytes + max(self._block_bytes, window_bytes // 4)
        return self._limit_bytes

    async def take(self, size_bytes: int) -> None:
        """Wait until it is this flow's turn to post so much."""
        if self._waiting or self._posted_bytes >= self._limit():
            turn = asyncio.get_running_loop().create_future()
            self._waiting.append((turn, size_bytes))
            await turn  # what is given a turn has been counted
        else:
            self._posted_bytes += size_bytes

    def done(self, size_bytes: int) -> None:
        """So much is not posted any more."""
        self._posted_bytes -= size_bytes
        while self._waiting and self._posted_bytes < self._limit():
            turn, next_bytes = self._waiting.popleft()
            if not turn.done():  # cancelled, at the end of the workload
                self._posted_bytes += next_bytes
                turn.set_result(None)
