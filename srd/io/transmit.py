"""Sending bursts: header and payload gathered by the kernel, several bursts a system call, GSO with a fallback.

A burst is one message of `sendmmsg`: pairs of (header, payload) in its iovec, and a UDP_SEGMENT control message that
makes the kernel cut it into datagrams. Where the kernel or the device refuses that (EIO, EINVAL, EMSGSIZE), the same
pairs go as one message a datagram, on that socket, from then on.
"""

from __future__ import annotations

import errno
import socket
import struct

import numpy as np

from srd.io import libc
from srd.io.libc import IOVEC, MMSGHDR, Address
from srd.proto.wire import HEADER, HEADER_BYTES, MAX_BURST_PACKETS, Burst, write_headers

BURSTS = 8
"""Bursts that may wait for one system call; consecutive bursts on one path are few."""
GSO_ERRORS = (errno.EIO, errno.EINVAL, errno.EMSGSIZE, errno.ENOPROTOOPT)
"""What kernels and devices answer when they cannot segment (quinn-udp, msquic and quic-go found these the hard way)."""
_CMSG = struct.Struct("=QiiH6x")
_INDEX = np.arange(MAX_BURST_PACKETS, dtype=np.uint64)


class Transmitter:
    """Collects bursts of one path in `add`, sends them in `flush`. Reuses its arrays; allocates nothing a burst."""

    def __init__(self) -> None:
        self._headers = np.zeros((BURSTS, MAX_BURST_PACKETS), HEADER)
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
        self._segments = [0] * BURSTS  # datagram size that the control message of each row says
        self._payload_lengths = [(0, 0)] * BURSTS  # (count, segment) that the iovec's lengths of each row are set for
        self._bursts: list[Burst] = []
        self._first = 0  # rows before it have been sent
        self._names: dict[Address, tuple[int, int, object]] = {}
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
        row = len(self._bursts)
        self._bursts.append(burst)
        write_headers(burst, out=self._headers[row])
        count, segment = burst.count, burst.segment_bytes
        payload = self._iov[row, :, 1]
        payload["base"][:count] = np.uint64(burst.payload_offset) + _INDEX[:count] * np.uint64(segment)
        last = burst.payload_bytes - (count - 1) * segment
        if self._payload_lengths[row] != (count, segment):
            payload["length"][:count] = segment
            self._payload_lengths[row] = (count, segment) if last == segment else (0, 0)
        if last != segment:
            payload["length"][count - 1] = last
            self._payload_lengths[row] = (0, 0)
        self._fill_message(row, burst)

    def _fill_message(self, row: int, burst: Burst) -> None:
        datagram = HEADER_BYTES + burst.segment_bytes
        if self._segments[row] != datagram:
            cmsg = _CMSG.pack(_CMSG.size - 6, socket.SOL_UDP, libc.UDP_SEGMENT, datagram)
            self._control[row] = np.frombuffer(cmsg, np.uint8)
            self._segments[row] = datagram
        name, name_bytes, _ = self._name(burst.address)
        message = self._messages[row]
        message["name"] = name
        message["namelen"] = name_bytes
        message["iovlen"] = 2 * burst.count
        message["controllen"] = _CMSG.size if burst.count > 1 else 0

    def _name(self, address: Address) -> tuple[int, int, object]:
        """Return (pointer, length, owner) of the address in the kernel's form."""
        known = self._names.get(address)
        if known is None:
            if len(self._names) >= 1 << 16:
                self._names.clear()
            buffer = np.frombuffer(bytearray(libc.pack_address(address)), np.uint8)
            known = self._names[address] = (buffer.ctypes.data, len(buffer), buffer)
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
        messages = self._messages.ctypes.data + self._first * MMSGHDR.itemsize
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
