"""Sending bursts: header and payload gathered by the kernel, several bursts a system call, GSO with a fallback.

A burst is one message of `sendmmsg`: pairs of (header, payload) in its iovec, and a UDP_SEGMENT control message that
makes the kernel cut it into datagrams. Where the kernel or the device refuses that (EIO, EINVAL, EMSGSIZE), the same
pairs go as one message a datagram, on that socket, from then on.
"""

from __future__ import annotations

import errno
import socket
import struct
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from srd.io import libc
from srd.io.libc import IOVEC, MMSGHDR, Address
from srd.proto.wire import FEW_PACKETS, HEADER, HEADER_BYTES, MAX_BURST_PACKETS, Burst, write_headers

BURSTS = 8
"""Bursts that may wait for one system call; consecutive bursts on one path are few."""
GSO_ERRORS = (errno.EIO, errno.EINVAL, errno.EMSGSIZE, errno.ENOPROTOOPT)
"""What kernels and devices answer when they cannot segment (quinn-udp, msquic and quic-go found these the hard way)."""
_CMSG = struct.Struct("=QiiH6x")
_NAME, _NAME_BYTES, _IOV_COUNT, _CONTROL_BYTES = 0, 1, 3, 5  # words of MMSGHDR
_INDEX = np.arange(MAX_BURST_PACKETS, dtype=np.uint64)


@lru_cache(maxsize=256)
def _steps(segment_bytes: int) -> npt.NDArray[np.uint64]:
    """Return where each payload of a burst starts, from the first."""
    return _INDEX * np.uint64(segment_bytes)


class _Row:
    """One message of `sendmmsg`, and what it was last set for: what stays the same is not written again."""

    __slots__ = ("_addresses", "_control", "_count", "_message", "_name", "_segment", "_shortened", "_slots", "headers")

    def __init__(self, message: npt.NDArray[np.void]) -> None:
        header_array = np.zeros(MAX_BURST_PACKETS, HEADER)
        iov = np.zeros((MAX_BURST_PACKETS, 2), IOVEC)
        iov[:, 0]["base"] = header_array.ctypes.data + _INDEX * np.uint64(HEADER_BYTES)
        iov[:, 0]["length"] = HEADER_BYTES
        self._control = np.zeros(_CMSG.size, np.uint8)
        message["iov"], message["control"] = iov.ctypes.data, self._control.ctypes.data
        self.headers = header_array.view(np.uint8).data
        # Flat views of 64-bit words: of the message (see MMSGHDR), and of the iovec, four words a packet. Writing a
        # field of a structured array costs five times as much.
        self._message = message.view(np.uint64).data
        self._slots = iov.view(np.uint64).reshape(-1).data
        self._addresses = iov["base"][:, 1]
        self._name: npt.NDArray[np.uint8] | None = None
        self._count = 0
        self._segment = 0  # payload bytes that the control message and the lengths are set for
        self._shortened = -1  # index of the payload whose length is not that; -1: none

    def fill(self, burst: Burst, *, name: npt.NDArray[np.uint8]) -> None:
        """Describe a burst to an address in the kernel's form."""
        count, segment, slots = burst.count, burst.segment_bytes, self._slots
        write_headers(burst, out=self.headers)
        if self._segment != segment:
            self._set_segment(segment)
        if self._shortened >= 0:
            slots[4 * self._shortened + 3] = segment
            self._shortened = -1
        if count <= FEW_PACKETS:
            address = burst.payload_offset
            for at in range(2, 4 * count, 4):
                slots[at] = address
                address += segment
        else:
            np.add(_steps(segment)[:count], np.uint64(burst.payload_offset), out=self._addresses[:count])
        last = burst.payload_bytes - (count - 1) * segment
        if last != segment:
            slots[4 * count - 1] = last
            self._shortened = count - 1
        if self._name is not name:
            self._name = name  # keeps the memory alive that the message points to
            self._message[_NAME], self._message[_NAME_BYTES] = name.ctypes.data, len(name)
        if self._count != count:
            self._count = count
            self._message[_IOV_COUNT] = 2 * count
            self._message[_CONTROL_BYTES] = _CMSG.size if count > 1 else 0

    def _set_segment(self, segment: int) -> None:
        """Set what depends on the segment size only: it changes with the peer, not with the burst."""
        self._segment = segment
        self._shortened = -1
        self._slots[3::4] = np.full(MAX_BURST_PACKETS, segment, np.uint64).data
        cmsg = _CMSG.pack(_CMSG.size - 6, socket.SOL_UDP, libc.UDP_SEGMENT, HEADER_BYTES + segment)
        self._control[:] = np.frombuffer(cmsg, np.uint8)


class Transmitter:
    """Collects bursts of one path in `add`, sends them in `flush`. Reuses its arrays; allocates nothing a burst."""

    def __init__(self) -> None:
        self.path: int | None = None  # of the bursts that wait; None when there are none
        self._messages = np.zeros(BURSTS, MMSGHDR)
        self._pointer = self._messages.ctypes.data
        self._rows = [_Row(self._messages[row : row + 1]) for row in range(BURSTS)]
        self._single = np.zeros(MAX_BURST_PACKETS, MMSGHDR)  # for the fallback: a message a datagram
        self._bursts: list[Burst] = []
        self._first = 0  # rows before it have been sent
        self._names: dict[Address, npt.NDArray[np.uint8]] = {}
        self._no_gso: set[int] = set()  # file descriptors

    def takes(self, path: int) -> bool:
        """Whether a burst on this path may be added before the next `flush`."""
        return self.path is None or (self.path == path and len(self._bursts) < BURSTS)

    def add(self, burst: Burst) -> None:
        """Take a burst of the same path as those that wait. Its payload is referred to, not copied."""
        self._rows[len(self._bursts)].fill(burst, name=self._name(burst.address))
        self._bursts.append(burst)
        self.path = burst.path

    def _name(self, address: Address) -> npt.NDArray[np.uint8]:
        """Return the address in the kernel's form."""
        name = self._names.get(address)
        if name is None:
            if len(self._names) >= 1 << 16:
                self._names.clear()
            name = self._names[address] = np.frombuffer(libc.pack_address(address), np.uint8)
        return name

    def flush(self, sock: socket.socket) -> bool:
        """Send what waits; return False when the socket is full and some still waits. Raises OSError."""
        while self._first < len(self._bursts):
            try:
                self._first += self._send(sock.fileno())
            except BlockingIOError:
                return False
        self._bursts.clear()
        self._first = 0
        self.path = None
        return True

    def discard(self) -> None:
        """Forget what waits: it counts as lost on the way."""
        self._bursts.clear()
        self._first = 0
        self.path = None

    def _send(self, fd: int) -> int:
        if fd in self._no_gso:
            self._send_singly(fd, self._first)
            return 1
        messages = self._pointer + self._first * MMSGHDR.itemsize
        try:
            return libc.sendmmsg(fd, messages=messages, count=len(self._bursts) - self._first)
        except OSError as error:
            if error.errno not in GSO_ERRORS or self._bursts[self._first].count == 1:
                raise
            self._no_gso.add(fd)
            return 0

    def _send_singly(self, fd: int, row: int) -> None:
        """Send the datagrams of one burst as a message each; a full socket loses the rest of the burst."""
        count = self._bursts[row].count
        single = self._single[:count]
        single["name"] = self._messages[row]["name"]
        single["namelen"] = self._messages[row]["namelen"]
        single["iov"] = self._messages[row]["iov"] + _INDEX[:count] * np.uint64(2 * IOVEC.itemsize)
        single["iovlen"] = 2
        libc.sendmmsg(fd, messages=single.ctypes.data, count=count)
