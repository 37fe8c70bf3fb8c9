"""The receiver's meter: the longest time without new bytes, and when a progress line is due.

Rule. Time starts at the first byte. A *stall* is the time between two arrivals of new bytes. The times before the first
byte (connecting) and after the last one (checking) do not count. `srd recv` measures in the same way.
"""

from __future__ import annotations

PROGRESS_INTERVAL_S = 0.05


class Meter:
    """Computes stalls from times and byte counts that the caller supplies; it does not read a clock."""

    def __init__(self) -> None:
        self.byte_count = 0
        self.longest_stall_s = 0.0
        self._first_at: float | None = None
        self._last_at = 0.0
        self._report_at = 0.0

    @property
    def started(self) -> bool:
        """Whether the first byte has arrived."""
        return self._first_at is not None

    def arrived(self, count: int, *, now: float) -> None:
        """Note `count` new bytes at `now` (s)."""
        if self._first_at is None:
            self._first_at = self._report_at = now
        else:
            self.longest_stall_s = max(self.longest_stall_s, now - self._last_at)
        self._last_at = now
        self.byte_count += count

    def seconds(self, *, now: float) -> float:
        """Seconds since the first byte; 0 before it."""
        return 0.0 if self._first_at is None else now - self._first_at

    def progress_due(self, *, now: float) -> bool:
        """Return True once per `PROGRESS_INTERVAL_S`, from the first byte on, when a progress line is due."""
        if self._first_at is None or now < self._report_at:
            return False
        self._report_at = now + PROGRESS_INTERVAL_S
        return True
