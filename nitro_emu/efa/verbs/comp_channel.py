"""Completion channels: where a program waits for the completions of several queues."""

from __future__ import annotations

import errno
import os
import select
import threading
import weakref
from collections import deque
from contextlib import suppress
from typing import Protocol

from nitro_emu.closing import Closing
from nitro_emu.efa.verbs.context import Context
from nitro_emu.efa.verbs.shared import take_events
from nitro_emu.errors import VerbsError


class Notified(Protocol):
    """A completion queue, as its channel knows it."""

    def on_event(self) -> None:
        """Note that the event of the last request for one has been taken."""


class CompletionChannel(Closing):
    """Waits for events of the completion queues that were created with it. A context manager.

    `fd` is readable when `get_event` has something to return or to raise, so that an event loop can wait for it.
    """

    def __init__(self, context: Context) -> None:
        self.context = context
        self._link = context.link
        self._link.check()
        self._epoll = select.epoll()
        self.fd = self._epoll.fileno()
        self._death_fd = os.dup(self._link.death_fd)
        self._epoll.register(self._death_fd, select.EPOLLIN)
        self._close = weakref.finalize(self, _close, self._epoll, self._death_fd)
        self._lock = threading.RLock()  # a queue may be collected, and so removed, while it is held
        self._pid = os.getpid()
        self._closed = False
        self._waiting = 0
        self._queues: dict[int, weakref.ref[Notified]] = {}
        self._pending: deque[weakref.ref[Notified]] = deque()
        self._link.resources.add(self)

    def add(self, queue: Notified, *, event_fd: int) -> None:
        """Watch a queue's descriptor of events. The queue keeps it. Raises VerbsError: closed (EINVAL)."""
        os.set_blocking(event_fd, False)
        with self._lock:
            if self._closed:
                raise VerbsError(errno.EINVAL, "the completion channel is closed")
            self._epoll.register(event_fd, select.EPOLLIN)
            self._queues[event_fd] = weakref.ref(queue)

    def remove(self, event_fd: int) -> None:
        """Watch it no longer. Its events that have not been taken are dropped."""
        if os.getpid() != self._pid:
            return  # the epoll object is shared with the parent, who watches it still
        with self._lock:
            queue = self._queues.pop(event_fd, None)
            if self._close.alive:
                with suppress(OSError):
                    self._epoll.unregister(event_fd)
            self._pending = deque(pending for pending in self._pending if pending is not queue)

    def get_event(self, *, timeout_s: float | None = None) -> Notified | None:
        """Wait for an event, return its queue; None after `timeout_s`. Raises VerbsError (EIO) if the card is dead."""
        while True:
            self._link.check()
            with self._lock:
                if self._closed:
                    raise VerbsError(errno.EINVAL, "the completion channel is closed")
                if (queue := self._pop()) is not None:
                    return queue
                self._waiting += 1
            ready: list[tuple[int, int]] = []
            try:
                ready = self._epoll.poll(timeout_s)
            finally:
                self._stop_waiting(ready)
            if not ready and timeout_s is not None:
                return None

    def _stop_waiting(self, ready: list[tuple[int, int]]) -> None:
        with self._lock:
            self._waiting -= 1
            for fd, _ in ready:
                self._take(fd)
            if self._closed and not self._waiting:
                self._close()

    def _take(self, fd: int) -> None:
        """Move the events of a descriptor to those that are pending. Another thread may have been faster."""
        queue = self._queues.get(fd)
        if queue is not None:
            with suppress(BlockingIOError):
                self._pending.extend([queue] * (take_events(fd) or 0))  # None: `check` says so soon

    def _pop(self) -> Notified | None:
        while self._pending:
            queue = self._pending.popleft()()
            if queue is not None:
                queue.on_event()
                return queue
        return None

    def release(self) -> None:
        """Close it with its context. Who waits in it wakes, as the death of the card is one of its events."""
        self.close()

    def close(self) -> None:
        """Close it. Its descriptors are closed when nobody waits in it any more."""
        with self._lock:
            self._closed = True
            if not self._waiting:
                self._close()


def _close(epoll: select.epoll, death_fd: int) -> None:
    epoll.close()
    os.close(death_fd)
