"""A bulk flow over kernel TCP or MPTCP between blocking sockets, as background of another measurement.

The sender writes until its time is over; the receiver reads until the connection ends, and has the figures.
"""

from __future__ import annotations

import time

from scripts.harness.events import emit
from srd.perf.tcp_socket import CUBIC, make_socket

WRITE_BYTES = 128 << 10
"""Bytes of a write, and of a read: more makes a plain TCP pair no faster."""


def receive(host: str, *, mptcp: bool) -> None:
    """Read one connection to its end; emit `received` with the goodput in Gbit/s since the first byte."""
    buffer = bytearray(WRITE_BYTES)
    received_bytes, started = 0, 0.0
    with make_socket(algorithm=CUBIC, mptcp=mptcp) as listener:  # open to the end: further subflows need it, too
        listener.bind((host, 0))
        listener.listen()
        emit("listening", port=listener.getsockname()[1])
        connection, _ = listener.accept()
        with connection:
            while count := connection.recv_into(buffer):
                started = started or time.perf_counter()
                received_bytes += count
    emit("received", gbps=8 * received_bytes / max(time.perf_counter() - started, 1e-9) / 1e9)


def send(host: str, *, port: int, seconds: float, mptcp: bool, bind: str | None) -> None:
    """Write for `seconds`, from the address `bind` if there is one."""
    data = bytes(WRITE_BYTES)
    with make_socket(algorithm=CUBIC, mptcp=mptcp) as sock:
        if bind is not None:
            sock.bind((bind, 0))
        sock.connect((host, port))
        until = time.perf_counter() + seconds
        while time.perf_counter() < until:
            sock.sendall(data)
    emit("sent")
