"""Kernel TCP by name: sockets with the congestion control, or MPTCP, that a measurement requests.

The algorithm is set with TCP_CONGESTION and read back: a default that differs from machine to machine compares nothing.
Buffers are left to the kernel's autotuning, which goes far beyond a fabric's bandwidth-delay product.
"""

from __future__ import annotations

import socket
from typing import Final

from srd.perf.errors import UnavailableError
from srd.perf.tcp_info import IPPROTO_MPTCP

CUBIC: Final = "cubic"
BBR: Final = "bbr"


def make_socket(*, algorithm: str, mptcp: bool, family: socket.AddressFamily = socket.AF_INET) -> socket.socket:
    """Return an unconnected stream socket that uses `algorithm` (for MPTCP: on each subflow).

    Raises UnavailableError naming what the kernel lacks.
    """
    protocol = IPPROTO_MPTCP if mptcp else socket.IPPROTO_TCP
    try:
        sock = socket.socket(family, socket.SOCK_STREAM, protocol)
    except OSError as error:
        raise UnavailableError(f"mptcp: this kernel offers none ({error.strerror}); see net.mptcp.enabled") from None
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, algorithm.encode())
    except OSError:
        sock.close()
        raise UnavailableError(
            f"tcp: this kernel has no congestion control {algorithm!r}; as root: modprobe tcp_{algorithm}"
        ) from None
    return sock


def algorithm_of(sock: socket.socket) -> str:
    """Return the name of a socket's congestion control."""
    return sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\0").decode()


def why_unavailable(*, algorithm: str, mptcp: bool) -> str | None:
    """Return in one line what the kernel lacks for such sockets, or None."""
    try:
        make_socket(algorithm=algorithm, mptcp=mptcp).close()
    except UnavailableError as error:
        return str(error)
    return None
