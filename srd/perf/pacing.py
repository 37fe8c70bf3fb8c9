"""How fast, and how much: a token bucket for `-b`, and the bytes of `-n` that all streams share."""

from __future__ import annotations

import threading


class TokenBucket:
    """Limits a stream to a rate. Time is an argument (seconds), so that it runs in virtual time.

    What is sent is paid for afterwards: a block may go as soon as the one before it is paid for. Idle time is worth at
    most `burst_s`, so that a stream that was stopped does not send all at once what it has missed.
    """

    def __init__(self, rate_bps: int, *, now: float, burst_s: float = 0.1) -> None:
        self._rate_bps = rate_bps
        self._burst_s = burst_s
        self._paid_at = now  # when all that was sent is paid for

    def delay_s(self, now: float) -> float:
        """Return how long the next block has to wait; 0: it may go."""
        return max(0.0, self._paid_at - now)

    def spend(self, size_bytes: int, *, now: float) -> None:
        """Take note that a block goes now."""
        self._paid_at = max(self._paid_at, now - self._burst_s) + 8 * size_bytes / self._rate_bps


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
