"""srd.io.recvmmsg over loopback: the kernel's results for a datagram, a train, a mark, and a truncated datagram."""

from __future__ import annotations

import ctypes
import socket
import time

import numpy as np
import pytest

from srd.io import syscalls
from srd.io.recvmmsg import RecvmmsgResults
from srd.io.socket import open_socket
from srd.io.syscalls import IOVEC
from tests.srd.io.exchange import LOOPBACK, source, wait_readable

ROOM_BYTES = 4096


@pytest.fixture(params=list(LOOPBACK), ids=lambda family: family.name)
def family(request: pytest.FixtureRequest) -> socket.AddressFamily:
    found: socket.AddressFamily = request.param
    return found


def receive(sock: socket.socket, results: RecvmmsgResults) -> int:
    """Receive into slots of one piece of memory each; return how many were filled."""
    memory = ctypes.create_string_buffer(ROOM_BYTES * len(results.messages))
    pieces = np.zeros(len(results.messages), IOVEC)
    pieces["base"] = ctypes.addressof(memory) + np.arange(len(pieces)) * ROOM_BYTES
    pieces["length"] = ROOM_BYTES
    results.messages["iov"] = pieces.ctypes.data + np.arange(len(pieces), dtype=np.uint64) * np.uint64(IOVEC.itemsize)
    results.messages["iovlen"] = 1
    results.reset(len(results.messages))
    wait_readable(sock)
    return syscalls.recvmmsg(sock.fileno(), messages=results.pointer, count=len(pieces))


def test_read__a_datagram_a_train_and_one_that_is_too_long(family: socket.AddressFamily) -> None:
    results = RecvmmsgResults(4)
    with source(family=family) as one, open_socket(LOOPBACK[family], family=family) as sock:
        to = sock.getsockname()
        before = time.time()
        one.socket.sendto(b"x" * 77, to)
        one.send_train(to, b"y" * 2500, segment_bytes=1000)
        one.socket.sendto(b"z" * (ROOM_BYTES + 1), to)
        one.socket.sendto(b"", to)
        assert receive(sock, results) == 4
        after = time.time()
        read = [results.read(slot) for slot in range(4)]
        assert [(length, size) for length, size, _, _ in read] == [(77, 77), (2500, 1000), (-1, -1), (0, 0)]
        assert all(before - 1 < seconds < after + 1 and not marked for _, _, marked, seconds in read)
        assert [results.address(slot) for slot in range(4)] == [one.socket.getsockname()] * 4
