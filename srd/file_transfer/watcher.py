"""What a session of a receiver tells about its files."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from srd.file_transfer.protocol import Offer, Offers


@dataclass(frozen=True, slots=True)
class ReceivedFile:
    """A file that was received and has its final name."""

    name: str
    path: Path | None
    """None for standard output."""
    size: int
    file_hash: str
    digest: str
    seconds: float
    longest_stall_ms: float
    """Longest time in which no payload landed since the file before, to 5 ms."""


class Watcher:
    """Is told what happens in a session; here, nothing is done about it."""

    def on_begin(self, offers: Offers) -> None:
        """The first offer of a session has arrived."""

    def on_resume(self, offer: Offer, resumed_bytes: int) -> None:
        """A file is ready to be written. `resumed_bytes`: of an earlier attempt."""

    def on_received(self, received: ReceivedFile) -> None:
        """A file has its final name."""

    def on_identical(self, offer: Offer, digest: str) -> None:
        """A file was there before, so that its sender has not sent it."""

    def on_failure(self, offer: Offer, error: Exception, *, is_kept: bool) -> None:
        """A file failed. `is_kept`: what there is of it, for its sender to go on."""

    def on_lost(self, error: Exception, files: list[tuple[Offer, bool]]) -> None:
        """The session ended before its files did; with each, whether what there is of it is kept."""

    def on_done(self) -> None:
        """All files that the sender had to offer have their last answer."""

    def warn(self, line: str) -> None:
        """A problem that fails no file."""


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

    def __exit__(self, *_: object) -> None:
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
