"""Kernel TCP and MPTCP: sockets with the congestion control that a measurement requests, and the kernel's counters.

The algorithm is set with TCP_CONGESTION and read back: a default that differs from machine to machine compares nothing.
Buffers are left to the kernel's autotuning, which goes far beyond a fabric's bandwidth-delay product.

Layouts: include/uapi/linux/tcp.h (struct tcp_info) and include/uapi/linux/mptcp.h (struct mptcp_info,
mptcp_subflow_data), Linux 6.18. All are append-only, and the kernel returns how much it wrote, so that an older kernel
is detected instead of misread.

For MPTCP, `bytes_sent` is the sum over subflows, and what one subflow sends again *for another* (reinjection, counted
by the MPTCP level in mptcpi_bytes_retrans) is a retransmission like what a subflow sends again by itself.
"""

from __future__ import annotations

import ctypes
import os
import socket
import struct
import sys
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from srd.perf.errors import UnavailableError

IPPROTO_MPTCP: Final = 262
SOL_MPTCP: Final = 284
MPTCP_INFO: Final = 1
MPTCP_TCPINFO: Final = 2

_TCPI_BYTES_SENT_OFFSET: Final = 200  # tcpi_bytes_sent, tcpi_bytes_retrans: u64 each; Linux 4.19
_TCP_INFO_BYTES: Final = 216
_OFFSETS: Final = {  # u32 each; tcpi_snd_wnd: Linux 5.4
    "snd_mss": 16, "pmtu": 60, "rtt": 68, "rttvar": 72, "snd_cwnd": 80, "total_retrans": 100, "segs_out": 136,
    "snd_wnd": 228,
}  # fmt: skip
_MPTCPI_BYTES_RETRANS_OFFSET: Final = 48  # u64; Linux 6.5
_MPTCP_INFO_BYTES: Final = 80
_SUBFLOW_DATA: Final = struct.Struct("=4I")  # size_subflow_data, num_subflows, size_kernel, size_user
_MAX_SUBFLOWS: Final = 16
_ITEM_BYTES: Final = 256


@dataclass(frozen=True, slots=True)
class SentCounts:
    """What a connection has sent."""

    bytes_sent: int
    """Payload bytes, those sent again included."""

    bytes_retransmitted: int
    """Of these, the ones sent again."""

    subflows: int = 0
    """MPTCP: how many it has. None for TCP and for MPTCP that fell back to TCP."""


@dataclass(frozen=True, slots=True)
class FlowInfo:
    """A TCP connection, or a subflow of MPTCP, at one moment."""

    retransmits: int
    """Segments."""
    cwnd_bytes: int
    snd_wnd_bytes: int
    """The other end's window."""
    rtt_us: int
    """Smoothed."""
    rttvar_us: int
    pmtu_bytes: int
    segments_sent: int
    snd_mss_bytes: int


def flows_of(sock: socket.socket) -> list[FlowInfo]:
    """Return the flows of a connected socket: one for TCP, and for MPTCP that fell back to it; else the subflows."""
    if sock.proto == IPPROTO_MPTCP:
        with suppress(OSError):  # fell back to TCP
            return [_flow(part) for part in _subflows(sock)]
    return [_flow(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256))]


def _flow(info: bytes) -> FlowInfo:
    padded = info.ljust(256, b"\0")  # what an older kernel does not count is 0
    field = {name: int.from_bytes(padded[at : at + 4], sys.byteorder) for name, at in _OFFSETS.items()}
    return FlowInfo(
        retransmits=field["total_retrans"],
        cwnd_bytes=field["snd_cwnd"] * field["snd_mss"],
        snd_wnd_bytes=field["snd_wnd"],
        rtt_us=field["rtt"],
        rttvar_us=field["rttvar"],
        pmtu_bytes=field["pmtu"],
        segments_sent=field["segs_out"],
        snd_mss_bytes=field["snd_mss"],
    )


def sent_by(sock: socket.socket) -> SentCounts:
    """Return what the connected TCP or MPTCP socket `sock` has sent.

    Raises UnavailableError on a kernel too old to count it.
    """
    if sock.proto != IPPROTO_MPTCP:
        return _sent_by_tcp(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256))
    try:
        info = sock.getsockopt(SOL_MPTCP, MPTCP_INFO, 256)
    except OSError:  # fell back to TCP: the MPTCP level is gone, the only flow is the TCP connection
        return _sent_by_tcp(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256))
    if len(info) < _MPTCP_INFO_BYTES:
        raise UnavailableError("mptcp: this kernel does not count retransmitted bytes; needs Linux 6.5")
    (reinjected,) = struct.unpack_from("=Q", info, _MPTCPI_BYTES_RETRANS_OFFSET)
    flows = [_sent_by_tcp(part) for part in _subflows(sock)]
    return SentCounts(
        bytes_sent=sum(flow.bytes_sent for flow in flows),
        bytes_retransmitted=reinjected + sum(flow.bytes_retransmitted for flow in flows),
        subflows=len(flows),
    )


def _sent_by_tcp(info: bytes) -> SentCounts:
    if len(info) < _TCP_INFO_BYTES:
        raise UnavailableError("tcp: this kernel does not count retransmitted bytes; needs Linux 4.19")
    total, again = struct.unpack_from("=2Q", info, _TCPI_BYTES_SENT_OFFSET)
    return SentCounts(bytes_sent=total, bytes_retransmitted=again)


def _subflows(sock: socket.socket) -> list[bytes]:
    """Return the struct tcp_info of each subflow, truncated to what the kernel wrote.

    The kernel reads the caller's sizes from the buffer, which socket.getsockopt cannot give it.
    """
    buffer = ctypes.create_string_buffer(_SUBFLOW_DATA.size + _MAX_SUBFLOWS * _ITEM_BYTES)
    _SUBFLOW_DATA.pack_into(buffer, 0, _SUBFLOW_DATA.size, 0, 0, _ITEM_BYTES)
    length = ctypes.c_uint32(len(buffer))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.getsockopt(sock.fileno(), SOL_MPTCP, MPTCP_TCPINFO, buffer, ctypes.byref(length)) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    _, flow_count, kernel_bytes, user_bytes = _SUBFLOW_DATA.unpack_from(buffer)
    starts = [_SUBFLOW_DATA.size + index * user_bytes for index in range(min(flow_count, _MAX_SUBFLOWS))]
    return [buffer.raw[start : start + min(kernel_bytes, user_bytes)] for start in starts]


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
