"""Sockets whose last close waits, until the other end is reset."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

LINGER_S = 600


@contextmanager
def lingering(count: int) -> Iterator[list[int]]:
    """Make descriptors that the block closes, or what has the last copies of them; at its end no close waits longer."""
    with ExitStack() as resets, socket.create_server(("127.0.0.1", 0)) as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        made = []
        for _ in range(count):
            sock = socket.create_connection(server.getsockname())
            other = resets.enter_context(server.accept()[0])
            other.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            _fill(sock)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, LINGER_S))
            made.append(sock.detach())
        yield made


def _fill(sock: socket.socket) -> None:
    sock.settimeout(0)
    try:
        while True:
            sock.send(bytes(1 << 16))
    except BlockingIOError:
        sock.settimeout(None)
