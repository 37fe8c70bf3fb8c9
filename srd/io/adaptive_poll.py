"""Adaptive polling: between messages that follow each other closely the event loop polls instead of sleeping.

A wake-up costs latency, and a request-response exchange waits for four of them. Polling costs CPU time, so it is
bounded, off during slow streams, which leave the CPU to others, and off while other threads compete for the CPU.
"""

from __future__ import annotations

import asyncio
import resource
import time
from typing import Final

SUPPRESS_S: Final = 0.01
"""No polling for this long after a stream: where several processes share a CPU, polling costs throughput."""
YIELD_S: Final = 0.001
"""No polling for this long after an involuntary context switch. Short, because the kernel preempts a thread for work of
its own, too, every few milliseconds."""


class AdaptivePoller:
    """Lets a loop poll its files without sleeping, for a while after each `extend`."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.active = False
        self._loop = loop
        self._until = 0.0  # the loop does not sleep before
        self._interrupted = 0  # involuntary context switches of this thread
        self._suppressed_until = 0.0  # no polling before

    def suppress(self, now: float) -> None:
        """Let `extend` do nothing for `SUPPRESS_S`, because of a stream."""
        self._suppressed_until = now + SUPPRESS_S

    def extend(self, now: float, *, window_s: float) -> None:
        """Poll until `window_s` from `now`, unless polling is suppressed."""
        if (interrupted := resource.getrusage(resource.RUSAGE_THREAD).ru_nivcsw) != self._interrupted:
            self._interrupted, self._suppressed_until = interrupted, max(self._suppressed_until, now + YIELD_S)
        if now < self._suppressed_until:
            return
        self._until = max(self._until, now + window_s)
        if not self.active:
            self.active = True
            self._loop.call_soon(self._poll)

    def end(self) -> None:
        """Let the loop sleep."""
        self._until = 0.0

    def _poll(self) -> None:
        """Keep the loop from sleeping for one more iteration."""
        self.active = time.monotonic() < self._until
        if self.active:
            self._loop.call_soon(self._poll)
