"""Sending bursts: header and payload gathered by the kernel, several messages a system call, GSO with a fallback.

1. A burst takes consecutive rows of two arrays: headers, and iovec pairs of (header, payload). It goes as messages of
   `sendmmsg`, each with as many of its packets as an IP packet's length allows, and a UDP_SEGMENT control message that
   makes the kernel cut it into datagrams.
2. An error may be about another datagram: what ICMP says of one that went before is reported by the next call, once.
   So the socket's error queue is drained, and the same message sent again. One that is refused all the same counts as
   lost on the way; those behind it go on. So does what the device's queue had no room for (ENOBUFS), at once: it is
   gone, in part perhaps, and sending it again now would not help.
3. Where the kernel or the device refuses to segment (EIO, EINVAL, EMSGSIZE), the same pairs go as one message a
   datagram; on that socket from then on, if that worked.
"""

from __future__ import annotations

import errno
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Self

import numpy as np
import numpy.typing as npt

from srd.io import syscalls
from srd.io.socket import unreachable_addresses
from srd.io.syscalls import IOVEC, MMSGHDR, Address
from srd.proto.wire.data import (
    FEW_PACKETS,
    HEADER,
    HEADER_BYTES,
    MAX_BURST_PACKETS,
    MAX_DATAGRAM_BYTES,
    MAX_TRAIN_PACKETS,
    Burst,
    write_headers,
)

PACKETS = 2 * MAX_BURST_PACKETS
"""Packets that may wait for one system call: two of the largest bursts; consecutive bursts on one path are few."""
MESSAGES = MAX_BURST_PACKETS
"""Messages that may wait for it: in the worst case one a packet of a burst."""
GSO_ERRORS = (errno.EIO, errno.EINVAL, errno.EMSGSIZE, errno.ENOPROTOOPT)
"""What kernels and devices answer when they cannot segment (quinn-udp, msquic and quic-go found these the hard way)."""
MAX_TRIES = 4
"""Calls before a message counts as refused: ICMP errors may come faster than they are drained, about one in a call."""
_CMSG = struct.Struct("=QiiH6x")
_WORDS = MMSGHDR.itemsize // 8
_NAME, _NAME_BYTES, _IOV, _IOV_COUNT, _CONTROL, _CONTROL_BYTES = range(6)  # words of MMSGHDR
_INDEX = np.arange(MAX_BURST_PACKETS, dtype=np.uint64)


@dataclass(frozen=True, slots=True)
class _CopiedPayload:
    """Bytes that the kernel reads at `address`, as long as this is referred to."""

    array: npt.NDArray[np.uint8]
    address: int
    size_bytes: int

    @classmethod
    def of(cls, data: bytes) -> Self:
        array = np.frombuffer(data, np.uint8)
        return cls(array, array.ctypes.data, len(data))


@lru_cache(maxsize=256)
def _steps(segment_bytes: int) -> npt.NDArray[np.uint64]:
    """Return where each payload of a burst starts, from the first."""
    return _INDEX * np.uint64(segment_bytes)


@lru_cache(maxsize=256)
def _segmentation(datagram_bytes: int) -> _CopiedPayload:
    """Return the control message that makes the kernel cut a message into datagrams of this size."""
    return _CopiedPayload.of(_CMSG.pack(_CMSG.size - 6, socket.SOL_UDP, syscalls.UDP_SEGMENT, datagram_bytes))


@lru_cache(maxsize=1 << 16)
def _name(address: Address) -> _CopiedPayload:
    """Return the address in the kernel's form."""
    return _CopiedPayload.of(syscalls.pack_address(address))


def messages_of(burst: Burst) -> int:
    """Return how many messages a burst is sent as."""
    return -(-burst.count // _per_message(burst.segment_bytes))


def _per_message(segment_bytes: int) -> int:
    return max(min(MAX_TRAIN_PACKETS, MAX_DATAGRAM_BYTES // (HEADER_BYTES + segment_bytes)), 1)


class Transmitter:
    """Collects bursts of one path in `add`, sends them in `flush`. Reuses its arrays; allocates nothing a burst."""

    def __init__(self, *, drain: Callable[[socket.socket], object] = unreachable_addresses) -> None:
        """Take `drain` to take what a socket's error queue holds."""
        self._drain = drain
        self.path: int | None = None  # of the bursts that wait; None when there are none
        headers = np.zeros(PACKETS, HEADER)
        self._iov = np.zeros((PACKETS, 2), IOVEC)
        self._iov[:, 0]["base"] = headers.ctypes.data + np.arange(PACKETS, dtype=np.uint64) * np.uint64(HEADER_BYTES)
        self._iov[:, 0]["length"] = HEADER_BYTES
        self._messages = np.zeros(MESSAGES, MMSGHDR)
        self._single = np.zeros(MAX_TRAIN_PACKETS, MMSGHDR)  # for the fallback: a message a datagram
        self._iov_at, self._messages_at = self._iov.ctypes.data, self._messages.ctypes.data
        # Flat views of 64-bit words: of the messages (see MMSGHDR), and of the iovec, four words a packet. Writing a
        # field of a structured array costs five times as much.
        self._headers = headers.view(np.uint8).data
        self._words = self._messages.view(np.uint64).data
        self._pairs = self._iov.view(np.uint64).reshape(-1).data
        self._addresses, self._lengths = self._iov["base"][:, 1], self._iov["length"][:, 1]
        self._packets = 0  # rows in use
        self._count = 0  # messages in use
        self._first = 0  # messages before it have been sent
        self._alive: list[_CopiedPayload] = []  # what the messages in use point to
        self._bursts: list[tuple[Burst, int]] = []  # those that wait, and the messages in use up to their last
        self._no_gso: set[int] = set()  # file descriptors

    def has_room_for(self, burst: Burst) -> bool:
        """Whether a burst may be added before the next `flush`."""
        if self.path is None:
            return True
        fits = self._packets + burst.count <= PACKETS and self._count + messages_of(burst) <= MESSAGES
        return fits and self.path == burst.path

    def add(self, burst: Burst) -> None:
        """Take a burst of the same path as those that wait. Its payload is referred to, not copied."""
        first, count = self._packets, burst.count
        write_headers(burst, out=self._headers[first * HEADER_BYTES :])
        self._point(burst, first)
        self._describe(burst, first)
        self._bursts.append((burst, self._count))
        self._packets = first + count
        self.path = burst.path

    def _point(self, burst: Burst, first: int) -> None:
        """Point the iovec's rows from `first` on at the payloads of a burst."""
        count, segment = burst.count, burst.segment_bytes
        if burst.payload_addresses is not None:
            self._addresses[first : first + count], self._lengths[first : first + count] = (
                burst.payload_addresses,
                segment,
            )
        elif count <= FEW_PACKETS:
            pairs, address = self._pairs, burst.payload_offset
            for at in range(4 * first + 2, 4 * (first + count), 4):
                pairs[at], pairs[at + 1] = address, segment
                address += segment
        else:
            end = first + count
            np.add(_steps(segment)[:count], np.uint64(burst.payload_offset), out=self._addresses[first:end])
            self._lengths[first:end] = segment
        self._pairs[4 * (first + count) - 1] = burst.payload_bytes - (count - 1) * segment

    def _describe(self, burst: Burst, first: int) -> None:
        """Describe a burst, whose rows begin at `first`, in messages for the kernel."""
        words, left = self._words, burst.count
        per_message = _per_message(burst.segment_bytes)
        name, control = _name(burst.address), _segmentation(HEADER_BYTES + burst.segment_bytes)
        self._alive += (name, control)
        iov_at = self._iov_at + first * 2 * IOVEC.itemsize
        while left > 0:
            count = min(left, per_message)
            at = self._count * _WORDS
            words[at + _NAME], words[at + _NAME_BYTES] = name.address, name.size_bytes
            words[at + _IOV], words[at + _IOV_COUNT] = iov_at, 2 * count
            words[at + _CONTROL] = control.address
            words[at + _CONTROL_BYTES] = control.size_bytes if count > 1 else 0
            self._count += 1
            iov_at += count * 2 * IOVEC.itemsize
            left -= count

    def flush(self, sock: socket.socket) -> bool:
        """Send what waits; return False when the socket is full and some still waits."""
        fd = sock.fileno()
        tries, singly = 0, False  # of the first message that waits: how often, and whether it is not to be segmented
        while self._first < self._count:
            try:
                if singly or fd in self._no_gso:
                    self._send_singly(fd)
                    self._no_gso.add(fd)
                else:
                    pointer = self._messages_at + self._first * MMSGHDR.itemsize
                    self._first += syscalls.sendmmsg(fd, messages=pointer, count=self._count - self._first)
                tries, singly = 0, False
            except BlockingIOError:
                return False
            except OSError as error:
                self._drain(sock)
                tries += 1
                if tries < MAX_TRIES and error.errno != errno.ENOBUFS:
                    continue
                tries = 0
                if fd in self._no_gso:
                    self._advance(1)
                elif not singly and error.errno in GSO_ERRORS and self._is_series():
                    singly = True
                else:
                    self._first, singly = self._first + 1, False
        self.discard()
        return True

    def _is_series(self) -> bool:
        """Whether the first message that waits has several datagrams."""
        return int(self._messages[self._first]["iovlen"]) > 2

    def _advance(self, datagrams: int) -> None:
        """Note that so many datagrams of the first message that waits need not be sent any more."""
        message = self._messages[self._first]
        if 2 * datagrams < message["iovlen"]:
            message["iov"] += 2 * IOVEC.itemsize * datagrams
            message["iovlen"] -= 2 * datagrams
        else:
            self._first += 1

    def discard(self) -> None:
        """Forget what waits: it counts as lost on the way."""
        self._packets = self._count = self._first = 0
        self._alive.clear()
        self._bursts.clear()
        self.path = None

    def copy_unsent(self, goes: Callable[[Burst], bool]) -> None:
        """Forget those of the bursts that wait which may not go any more: they count as lost on the way."""
        rows: list[int] = []
        kept: list[tuple[Burst, int]] = []
        first = 0
        for burst, end in self._bursts:
            if goes(burst):
                rows += range(max(first, self._first), end)
                kept.append((burst, len(rows)))
            first = end
        if len(kept) == len(self._bursts):
            return
        if not rows:
            self.discard()
            return
        self._messages[: len(rows)] = self._messages[rows]
        self._bursts, self._first, self._count = kept, 0, len(rows)

    def _send_singly(self, fd: int) -> None:
        """Send the datagrams of the first message that waits as a message each, as many as the socket takes."""
        message = self._messages[self._first]
        count = int(message["iovlen"]) // 2
        single = self._single[:count]
        single["name"], single["namelen"] = message["name"], message["namelen"]
        single["iov"] = message["iov"] + _INDEX[:count] * np.uint64(2 * IOVEC.itemsize)
        single["iovlen"] = 2
        self._advance(syscalls.sendmmsg(fd, messages=single.ctypes.data, count=count))
