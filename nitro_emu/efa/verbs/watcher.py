"""A thread that learns of the card's death and of its events.

It waits for the end of the admin connection and for the events' descriptor, and never reads the connection: the
replies on it are the commands'. It holds no reference to the context, so that a forgotten context is collected.
"""

from __future__ import annotations

import os
import select
import socket
import threading
from collections.abc import Callable
from contextlib import suppress

from nitro_emu.efa.verbs.shared import take_events

_END = select.POLLHUP | select.POLLRDHUP | select.POLLERR


class DeviceWatcher:
    """Calls `on_event` for events, and `on_end` once when the connection ends, both in its thread.

    Takes over the socket and the descriptor of events: the thread closes them, when nothing waits on them any more.
    """

    def __init__(
        self, connection: socket.socket, event_fd: int, *, on_event: Callable[[], None], on_end: Callable[[], None]
    ) -> None:
        self._connection = connection
        self._event_fd = event_fd
        self._thread = threading.Thread(
            target=_watch, args=(connection, event_fd, on_event, on_end), name="nitro-verbs", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """End the connection, and wait until the thread has closed its descriptors."""
        with suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def after_fork(self) -> None:
        """Close the copies of the descriptors in a child process, where there is no thread."""
        self._connection.close()
        os.close(self._event_fd)


def _watch(connection: socket.socket, event_fd: int, on_event: Callable[[], None], on_end: Callable[[], None]) -> None:
    poller = select.poll()
    poller.register(connection, select.POLLRDHUP)
    poller.register(event_fd, select.POLLIN)
    try:
        while True:
            ready = dict(poller.poll())
            if ready.get(event_fd, 0):
                if take_events(event_fd) is None:
                    return
                on_event()
            if ready.get(connection.fileno(), 0) & _END:
                return
    finally:
        on_end()
        connection.close()
        os.close(event_fd)
