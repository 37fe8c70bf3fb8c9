"""How fast a stream sends (`-b`), and the bytes of `-n` that all streams share."""

from __future__ import annotations

import threading
from typing import Final

from netns.base.token_bucket import TokenBucket

BURST_S: Final = 0.1
"""What idle time is worth at most: a stream that was stopped does not send all at once what it has missed."""


def pace(rate_bps: int, *, now: float) -> TokenBucket:
    """Return the bucket of a stream, of bytes: a block may go as soon as the one before it is paid for."""
    return TokenBucket(rate_bps / 8, depth_s=BURST_S, empty_at=now)


class Budget:
    """The bytes that a direction may send, over all its streams, which may be threads."""

    def __init__(self, size_bytes: int) -> None:
        """Allow `size_bytes`; 0: without end."""
        self._left_bytes = size_bytes
        self.is_limited = bool(size_bytes)
        self._lock = threading.Lock()

    def take(self, size_bytes: int) -> int:
        """Take up to `size_bytes`; return how many it may be."""
        if not self.is_limited:
            return size_bytes
        with self._lock:
            taken = min(size_bytes, self._left_bytes)
            self._left_bytes -= taken
            return taken
