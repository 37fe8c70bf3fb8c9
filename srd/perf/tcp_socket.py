"""Kernel TCP by name: sockets with the congestion control, or MPTCP, that a comparison requests.

The algorithm is set with TCP_CONGESTION and read back: a default that differs from machine to machine compares nothing.
Buffers are left to the kernel's autotuning, which goes far beyond the fabric's bandwidth-delay product.
"""

from __future__ import annotations

import socket
from typing import Final

from scripts.compare.errors import UnavailableError
from scripts.compare.tcp_info import IPPROTO_MPTCP

CUBIC: Final = "cubic"
BBR: Final = "bbr"


def make_socket(*, algorithm: str, mptcp: bool) -> socket.socket:
    """Return an unconnected IPv4 stream socket that uses `algorithm` (for MPTCP: on each subflow).

    Raises UnavailableError naming what the kernel lacks.
    """
    protocol = IPPROTO_MPTCP if mptcp else socket.IPPROTO_TCP
    try:
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM, protocol)
    except OSError as error:
        raise UnavailableError(f"mptcp: this kernel offers none ({error.strerror}); see net.mptcp.enabled") from None
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, algorithm.encode())
    except OSError:
        sock.close()
        raise UnavailableError(f"tcp: this kernel has no congestion control {algorithm!r}") from None
    return sock


def why_unavailable(*, algorithm: str, mptcp: bool) -> str | None:
    """Return in one line what the kernel lacks for such sockets, or None."""
    try:
        make_socket(algorithm=algorithm, mptcp=mptcp).close()
    except UnavailableError as error:
        return str(error)
    return None
