"""Linux system calls and constants that Python lacks: sendmmsg, recvmmsg, timerfd (numbers from the UAPI headers).

Arrays of the kernel's structures are NumPy structured arrays, filled by expressions over whole arrays. A call through
ctypes is expensive, so each one handles many messages.
"""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import struct
import time

import numpy as np

UDP_SEGMENT = 103  # linux/udp.h
UDP_GRO = 104
SO_TIMESTAMPNS = 35  # asm-generic/socket.h; its control message has the same number
SO_SNDBUFFORCE = 32
SO_RCVBUFFORCE = 33
SO_MEMINFO = 55
MEMINFO_DROPS = 8  # index into SO_MEMINFO's array (linux/sock_diag.h)
IP_MTU_DISCOVER = 10  # linux/in.h
IP_PMTUDISC_PROBE = 3
IP_RECVERR = 11
IP_MTU = 14
IPV6_MTU_DISCOVER = 23  # linux/in6.h
IPV6_RECVERR = 25
IPV6_MTU = 24

IOVEC = np.dtype([("base", "<u8"), ("length", "<u8")])
MMSGHDR = np.dtype(
    {
        "names": ["name", "namelen", "iov", "iovlen", "control", "controllen", "flags", "length"],
        "formats": ["<u8", "<u4", "<u8", "<u8", "<u8", "<u8", "<i4", "<u4"],
        "offsets": [0, 8, 16, 24, 32, 40, 48, 56],
        "itemsize": 64,
    }
)
_TFD_TIMER_ABSTIME = 1  # linux/timerfd.h
SOCKADDR_BYTES = 28  # sockaddr_in6, the longer of the two

_libc = ctypes.CDLL(None, use_errno=True)
# These two never block and so keep the GIL: releasing it at every call would let the threads for file I/O take it, and
# it would take a thread switch to get it back.
_locked = ctypes.PyDLL(None, use_errno=True)
_sendmmsg = _locked.sendmmsg
_recvmmsg = _locked.recvmmsg
_sendmmsg.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_uint, ctypes.c_int]
_recvmmsg.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_uint, ctypes.c_int, ctypes.c_void_p]


def sendmmsg(fd: int, *, messages: int, count: int) -> int:
    """Send `count` messages of the MMSGHDR array at address `messages`; return how many were sent. Raises OSError."""
    sent: int = _sendmmsg(fd, messages, count, socket.MSG_DONTWAIT)
    if sent < 0:
        code = ctypes.get_errno()
        raise OSError(code, errno.errorcode.get(code, str(code)))
    return sent


def recvmmsg(fd: int, *, messages: int, count: int) -> int:
    """Receive up to `count` messages; return how many were received, 0 if none is waiting. Raises OSError."""
    received: int = _recvmmsg(fd, messages, count, socket.MSG_DONTWAIT, None)
    if received < 0:
        code = ctypes.get_errno()
        if code in (errno.EAGAIN, errno.EINTR):
            return 0
        raise OSError(code, errno.errorcode.get(code, str(code)))
    return received


Address = tuple[str, int] | tuple[str, int, int, int]


def pack_address(address: Address) -> bytes:
    """Return an address of the socket module as a sockaddr_in or sockaddr_in6."""
    if len(address) == 4:
        host, port, _, scope = address
        packed = socket.inet_pton(socket.AF_INET6, host.partition("%")[0])
        head = struct.pack("=H", socket.AF_INET6) + struct.pack("!HI", port, 0)
        return head + packed + struct.pack("=I", scope)
    return struct.pack("=H", socket.AF_INET) + struct.pack("!H", address[1]) + socket.inet_aton(address[0]) + bytes(8)


def unpack_address(data: bytes) -> Address:
    """Return the address in a sockaddr_in or sockaddr_in6, without the latter's flow label."""
    (family,) = struct.unpack_from("=H", data)
    (port,) = struct.unpack_from("!H", data, 2)
    if family == socket.AF_INET6:
        (scope,) = struct.unpack_from("=I", data, 24)
        return socket.inet_ntop(socket.AF_INET6, data[8:24]), port, 0, scope
    return socket.inet_ntop(socket.AF_INET, data[4:8]), port


def timerfd_create() -> int:
    """Return the descriptor of a non-blocking timer on CLOCK_MONOTONIC. Raises OSError."""
    fd: int = _libc.timerfd_create(time.CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
    if fd < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"timerfd_create: {os.strerror(code)}")
    return fd


def timerfd_settime(fd: int, *, at_ns: int) -> None:
    """Let a timer expire once, at `at_ns` of its clock; 0 disarms it."""
    _libc.timerfd_settime(fd, _TFD_TIMER_ABSTIME, struct.pack("=qqqq", 0, 0, *divmod(at_ns, 1_000_000_000)), None)
