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
from srd.io.libc import IOVEC, MMSGHDR, SOCKADDR_BYTES, Address
from srd.proto.wire import HEADER, HEADER_BYTES, MAX_BURST_PACKETS, Burst, words_of, write_headers

BURSTS = 8
"""Bursts that may wait for one system call; consecutive bursts on one path are few."""
GSO_ERRORS = (errno.EIO, errno.EINVAL, errno.EMSGSIZE, errno.ENOPROTOOPT)
"""What kernels and devices answer when they cannot segment (quinn-udp, msquic and quic-go found these the hard way)."""
_CMSG = struct.Struct("=QiiH6x")
_INDEX = np.arange(MAX_BURST_PACKETS, dtype=np.uint64)


@lru_cache(maxsize=256)
def _steps(segment_bytes: int) -> npt.NDArray[np.uint64]:
    """Return where each payload of a burst starts, from the first."""
    return _INDEX * np.uint64(segment_bytes)


class Transmitter:
    """Collects bursts of one path in `add`, sends them in `flush`. Reuses its arrays; allocates nothing a burst."""

    def __init__(self) -> None:
        self._headers = np.zeros((BURSTS, MAX_BURST_PACKETS), HEADER)
        self._words = list(words_of(self._headers))
        self._iov = np.zeros((BURSTS, MAX_BURST_PACKETS, 2), IOVEC)
        self._control = np.zeros((BURSTS, _CMSG.size), np.uint8)
        self._messages = np.zeros(BURSTS, MMSGHDR)
        self._single = np.zeros(MAX_BURST_PACKETS, MMSGHDR)  # for the fallback: a message a datagram
        rows = np.arange(BURSTS, dtype=np.uint64)
        first = self._headers.ctypes.data + rows[:, np.newaxis] * np.uint64(MAX_BURST_PACKETS * HEADER_BYTES)
        self._iov[:, :, 0]["base"] = first + _INDEX * np.uint64(HEADER_BYTES)
        self._iov[:, :, 0]["length"] = HEADER_BYTES
        self._messages["iov"] = self._iov.ctypes.data + rows * np.uint64(MAX_BURST_PACKETS * 2 * IOVEC.itemsize)
        self._messages["control"] = self._control.ctypes.data + rows * np.uint64(_CMSG.size)
        self._sockaddrs = np.zeros((BURSTS, SOCKADDR_BYTES), np.uint8)
        self._messages["name"] = self._sockaddrs.ctypes.data + rows * np.uint64(SOCKADDR_BYTES)
        self._pointer = self._messages.ctypes.data
        # Columns as plain arrays: a field of a structured array costs more to look up than to write.
        self._bases, self._lengths = list(self._iov["base"][:, :, 1]), list(self._iov["length"][:, :, 1])
        self._name_lengths = self._messages["namelen"]
        self._iov_lengths, self._control_lengths = self._messages["iovlen"], self._messages["controllen"]
        self._segments = [0] * BURSTS  # payload bytes that each row's control message and iovec lengths are set for
        self._shortened = [-1] * BURSTS  # index of the payload whose length in the row is not that; -1: none
        self._bursts: list[Burst] = []
        self._first = 0  # rows before it have been sent
        self._names: dict[Address, npt.NDArray[np.uint8]] = {}
        self._no_gso: set[int] = set()  # file descriptors

    @property
    def path(self) -> int | None:
        """Path of the bursts that wait; None when there are none."""
        return self._bursts[0].path if self._bursts else None

    @property
    def full(self) -> bool:
        """Whether `flush` must come before the next `add`."""
        return len(self._bursts) == BURSTS

    def add(self, burst: Burst) -> None:
        """Take a burst of the same path as those that wait. Its payload is referred to, not copied."""
        row, count, segment = len(self._bursts), burst.count, burst.segment_bytes
        self._bursts.append(burst)
        write_headers(burst, out=self._words[row])
        if self._segments[row] != segment:
            self._set_segment(row, segment)
        if self._shortened[row] >= 0:
            self._lengths[row][self._shortened[row]] = segment
            self._shortened[row] = -1
        np.add(_steps(segment)[:count], np.uint64(burst.payload_offset), out=self._bases[row][:count])
        last = burst.payload_bytes - (count - 1) * segment
        if last != segment:
            self._lengths[row][count - 1] = last
            self._shortened[row] = count - 1
        name = self._name(burst.address)
        self._sockaddrs[row, : len(name)] = name
        self._name_lengths[row] = len(name)
        self._iov_lengths[row] = 2 * count
        self._control_lengths[row] = _CMSG.size if count > 1 else 0

    def _set_segment(self, row: int, segment: int) -> None:
        """Set what depends on the segment size only: it changes with the peer, not with the burst."""
        self._segments[row] = segment
        self._shortened[row] = -1
        self._lengths[row].fill(segment)
        cmsg = _CMSG.pack(_CMSG.size - 6, socket.SOL_UDP, libc.UDP_SEGMENT, HEADER_BYTES + segment)
        self._control[row] = np.frombuffer(cmsg, np.uint8)

    def _name(self, address: Address) -> npt.NDArray[np.uint8]:
        """Return the address in the kernel's form."""
        known = self._names.get(address)
        if known is None:
            if len(self._names) >= 1 << 16:
                self._names.clear()
            known = self._names[address] = np.frombuffer(libc.pack_address(address), np.uint8)
        return known

    def flush(self, sock: socket.socket) -> bool:
        """Send what waits; return False when the socket is full and some still waits. Raises OSError."""
        while self._first < len(self._bursts):
            try:
                self._first += self._send(sock.fileno())
            except BlockingIOError:
                return False
        self._bursts.clear()
        self._first = 0
        return True

    def discard(self) -> None:
        """Forget what waits: it counts as lost on the way."""
        self._bursts.clear()
        self._first = 0

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
