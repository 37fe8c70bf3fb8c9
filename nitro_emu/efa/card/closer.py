"""Gives back what came from programs, in a thread of its own: closing it may take as long as they like.

A socket that lingers (SO_LINGER) waits in close(2), a file in user space asks its server, and whoever has a memfd last
frees its pages: 0.2 s a GiB. So the thread of the card's loop has the last reference to nothing of that kind: not to a
descriptor that a program has sent, not to its connection, in which unread ones may be, and not to mapped memory. Each
virtual function has one such thread; what stops it keeps the programs of that one waiting, and nobody else.
"""

from __future__ import annotations

import os
import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from typing import Final

MAX_PENDING: Final = 64
"""A virtual function with more that is not closed yet does not serve its programs meanwhile."""

RETRY_S: Final = 0.01
"""How often that is looked at."""

THREAD: Final = "nitro-closer"

_NO_LINGER: Final = struct.pack("ii", 0, 0)


class Closer:
    """One virtual function's. `close` it when nothing more comes."""

    def __init__(self) -> None:
        self._work: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._given = 0
        self._done = 0  # written by the thread

    @property
    def is_behind(self) -> bool:
        """Whether nothing more is to come from programs for now."""
        return self._given - self._done >= MAX_PENDING

    def run(self, work: Callable[[], None]) -> None:
        """Have `work` done, after what was given before."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, args=(self._work,), name=THREAD, daemon=True)
            self._thread.start()
        self._given += 1
        self._work.put(work)

    def close_untrusted(self, fd: int) -> None:
        """Close a descriptor."""
        self.run(partial(_close_untrusted, fd))

    def _run(self, queue: SimpleQueue[Callable[[], None] | None]) -> None:
        while (work := queue.get()) is not None:
            work()
            self._done += 1

    def close(self) -> None:
        """End the thread when it has done everything; do not wait for that."""
        if self._thread is not None:
            self._work.put(None)
            self._thread, self._work = None, SimpleQueue()


def _close_untrusted(fd: int) -> None:
    with suppress(OSError):  # it is none
        sock = socket.socket(fileno=fd)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
        finally:
            sock.detach()
    with suppress(OSError):  # closed all the same
        os.close(fd)
