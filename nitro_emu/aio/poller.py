"""The one place where a device's queue pairs wait for completions: one descriptor in the event loop.

1. A completion queue is either armed, so that its next completion makes the channel's descriptor readable, or polled by
   each turn of the event loop.
2. After a completion, all queues that had one lately are polled for `adaptive_poll_s`, before they are armed and the
   event loop sleeps: being woken costs more latency than a message. `srd.io.adaptive_poll` has the bounds of this.
3. A queue that was armed is polled once more, as completions may have come before the card has seen that.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from typing import Protocol

from nitro_emu.errors import VerbsError
from nitro_emu.verbs import CompletionChannel, CompletionQueue, Context
from srd.io.adaptive_poll import AdaptivePoller


class Polled(Protocol):
    """A queue pair, as its poller knows it."""

    @property
    def cq(self) -> CompletionQueue:
        """Its completion queue."""

    def process(self) -> int:
        """Process some completions; return how many. Raises VerbsError: the card is dead."""


class CompletionPoller:
    """See the module. `on_dead` is called once if the card dies."""

    def __init__(self, context: Context, *, adaptive_poll_s: float, on_dead: Callable[[VerbsError], None]) -> None:
        self.channel = CompletionChannel(context)
        self._loop = asyncio.get_running_loop()
        self._adaptive = AdaptivePoller(self._loop)
        self._adaptive_poll_s = adaptive_poll_s
        self._on_dead = on_dead
        self._queues: dict[CompletionQueue, Polled] = {}
        self._busy: dict[Polled, None] = {}
        self._is_scheduled = self._is_closed = False
        self._loop.add_reader(self.channel.fd, self._on_readable)

    def add(self, queue: Polled) -> None:
        """Poll a queue from now on."""
        self._queues[queue.cq] = queue
        self._busy[queue] = None
        self._schedule()

    def remove(self, queue: Polled) -> None:
        """Poll it no more."""
        self._queues.pop(queue.cq, None)
        self._busy.pop(queue, None)

    def suppress(self) -> None:
        """Let the event loop sleep for a while although there are completions: they are of a bulk transfer.

        The next one takes long, and the processor is needed for it.
        """
        self._adaptive.suppress(time.monotonic())

    def _schedule(self) -> None:
        """Take another turn, unless there is nothing to poll."""
        if self._busy and not self._is_scheduled and not self._is_closed:
            self._is_scheduled = True
            self._loop.call_soon(self._turn)

    def _on_readable(self) -> None:
        try:
            while (ready := self.channel.get_event(timeout_s=0)) is not None:
                if isinstance(ready, CompletionQueue) and (queue := self._queues.get(ready)) is not None:
                    self._busy[queue] = None
        except VerbsError as error:
            self._die(error)
            return
        self._turn()

    def _turn(self) -> None:
        """Poll the busy queues once; arm them if there was nothing for long enough."""
        self._is_scheduled = False
        if self._is_closed:
            return
        try:
            if self._process():
                self._adaptive.extend(time.monotonic(), window_s=self._adaptive_poll_s)
            elif self._adaptive.active:
                os.sched_yield()  # the card, or the other end, may share this processor
            else:
                self._arm()
        except VerbsError as error:
            self._die(error)
        finally:
            self._schedule()

    def _process(self) -> int:
        return sum(queue.process() for queue in list(self._busy) if queue in self._busy)

    def _arm(self) -> None:
        """Arm all busy queues; those without a completion since then are not busy any more."""
        for queue in list(self._busy):
            queue.cq.request_notify()
            if not queue.process():
                self._busy.pop(queue, None)

    def _die(self, error: VerbsError) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._loop.remove_reader(self.channel.fd)
            self._on_dead(error)

    def close(self) -> None:
        """Wait for nothing any more."""
        if not self._is_closed:
            self._is_closed = True
            self._loop.remove_reader(self.channel.fd)
        self._adaptive.end()
        self._busy.clear()
        self._queues.clear()
        self.channel.close()
