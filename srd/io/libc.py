"""What Python's `socket` lacks of Linux: sendmmsg, recvmmsg, timerfd, and constants (numbers from the UAPI headers).

Arrays of the kernel's structures are NumPy structured arrays, filled by expressions over whole arrays; a call through
ctypes costs about a microsecond.
"""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import struct
import time
from contextlib import suppress

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
SOCKADDR_BYTES = 28  # sockaddr_in6, the longer of the two

_libc = ctypes.CDLL(None, use_errno=True)
# Never blocking, these two keep the interpreter's lock: giving it away at every call would hand it to the threads that
# read and write files, and take a switch of threads to get back.
_locked = ctypes.PyDLL(None, use_errno=True)
_sendmmsg = _locked.sendmmsg
_recvmmsg = _locked.recvmmsg
_sendmmsg.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_uint, ctypes.c_int]
_recvmmsg.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_uint, ctypes.c_int, ctypes.c_void_p]


def sendmmsg(fd: int, *, messages: int, count: int) -> int:
    """Send `count` messages of the MMSGHDR array at address `messages`; return how many went. Raises OSError."""
    sent: int = _sendmmsg(fd, messages, count, socket.MSG_DONTWAIT)
    if sent < 0:
        code = ctypes.get_errno()
        raise OSError(code, errno.errorcode.get(code, str(code)))
    return sent


def recvmmsg(fd: int, *, messages: int, count: int) -> int:
    """Receive up to `count` messages; return how many came, 0 when there are none. Raises OSError."""
    received: int = _recvmmsg(fd, messages, count, socket.MSG_DONTWAIT, None)
    if received < 0:
        code = ctypes.get_errno()
        if code in (errno.EAGAIN, errno.EINTR):
            return 0
        raise OSError(code, errno.errorcode.get(code, str(code)))
    return received


Address = tuple[str, int] | tuple[str, int, int, int]


def pack_address(address: Address) -> bytes:
    """Return `address`, as the socket module gives it, as a sockaddr_in or sockaddr_in6."""
    if len(address) == 4:
        host, port, flow, scope = address
        packed = socket.inet_pton(socket.AF_INET6, host.partition("%")[0])
        head = struct.pack("=H", socket.AF_INET6) + struct.pack("!HI", port, flow)
        return head + packed + struct.pack("=I", scope)
    return struct.pack("=H", socket.AF_INET) + struct.pack("!H", address[1]) + socket.inet_aton(address[0]) + bytes(8)


def unpack_address(data: bytes) -> Address:
    """Return the address in a sockaddr_in or sockaddr_in6."""
    (family,) = struct.unpack_from("=H", data)
    (port,) = struct.unpack_from("!H", data, 2)
    if family == socket.AF_INET6:
        (flow,) = struct.unpack_from("!I", data, 4)
        (scope,) = struct.unpack_from("=I", data, 24)
        return socket.inet_ntop(socket.AF_INET6, data[8:24]), port, flow, scope
    return socket.inet_ntop(socket.AF_INET, data[4:8]), port


class TimerFd:
    """A timer with the kernel's resolution as a readable file: event loops round their own to a millisecond."""

    _CLOCK_MONOTONIC = 1
    _TFD_TIMER_ABSTIME = 1

    def __init__(self) -> None:
        self.fd: int = _libc.timerfd_create(self._CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
        if self.fd < 0:
            code = ctypes.get_errno()
            raise OSError(code, f"timerfd_create: {os.strerror(code)}")
        self._at: float | None = None  # what the kernel has
        self._wanted_at: float | None = None

    def arm(self, at: float | None) -> None:
        """Become readable at `at` (seconds of `time.monotonic`), or before; never, for None.

        A time that moves later is not told to the kernel: nearly every turn moves it, and hardly any reaches it.
        """
        self._wanted_at = at
        if at == self._at or (at is not None and self._at is not None and self._at < at):
            return
        self._at = at
        ns = 0 if at is None else max(int(at * 1e9), 1)
        spec = struct.pack("=qqqq", 0, 0, ns // 1_000_000_000, ns % 1_000_000_000)
        _libc.timerfd_settime(self.fd, self._TFD_TIMER_ABSTIME, spec, None)

    def take(self) -> bool:
        """Read the expiry, so that the file is no longer readable; return whether the time has come.

        If it moved later meanwhile, it is told to the kernel now.
        """
        self._at = None
        with suppress(BlockingIOError):  # armed anew since
            os.read(self.fd, 8)
        due = self._wanted_at is not None and time.monotonic() >= self._wanted_at
        if not due:
            self.arm(self._wanted_at)
        return due

    def close(self) -> None:
        """Close the file."""
        os.close(self.fd)
