"""Staying awake: between messages that follow each other closely an event loop does not go to sleep.

To be woken takes 30 to 50 us, and a message to and fro is waited for four times. But who does not sleep takes the
processor from others: so not for long, not beside streams, which need it, and not where others do.
"""

from __future__ import annotations

import asyncio
import resource
import time

SUPPRESS_S = 0.01
"""After a stream a loop sleeps when it may for as long: in the demo, where five processes share two processors, staying
awake cost 9 % of the throughput."""
YIELD_S = 0.001
"""The same after the kernel took the processor from this thread to give it to another. It does so for work of its own,
too, every few milliseconds: with 10 ms p50 of 64 B was 170 us instead of 134 (medians of eight runs in turn)."""


class AdaptivePoller:
    """Has a loop look at its files without waiting, each time for `adaptive_poll_s` (see `EndpointConfig`)."""

    def __init__(self, loop: asyncio.AbstractEventLoop, *, window_s: float) -> None:
        self.active = False
        self._loop = loop
        self._window_s = window_s
        self._until = 0.0  # the loop does not sleep before
        self._interrupted = 0  # how often the kernel took the processor away
        self._suppressed_until = 0.0  # from when on nobody else is taken to want it

    def suppress(self, now: float) -> None:
        """Note a stream."""
        self._suppressed_until = now + SUPPRESS_S

    def extend(self, now: float) -> None:
        """Have the loop not sleep for a while, in calm times."""
        if (interrupted := resource.getrusage(resource.RUSAGE_THREAD).ru_nivcsw) != self._interrupted:
            self._interrupted, self._suppressed_until = interrupted, max(self._suppressed_until, now + YIELD_S)
        if now < self._suppressed_until:
            return
        self._until = now + self._window_s
        if not self.active:
            self.active = True
            self._loop.call_soon(self._look)

    def end(self) -> None:
        """Let the loop sleep."""
        self._until = 0.0

    def _look(self) -> None:
        """Let the loop look at its files once more, without waiting."""
        self.active = time.monotonic() < self._until
        if self.active:
            self._loop.call_soon(self._look)
