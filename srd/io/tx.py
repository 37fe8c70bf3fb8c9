"""Sending bursts: the kernel gathers header and payload; several messages per system call; GSO with a fallback.

1. A burst takes consecutive rows of two arrays: headers, and iovec pairs of (header, payload). It is sent as messages
   of `sendmmsg`, each with as many of its packets as an IP packet's length allows, and with a UDP_SEGMENT control
   message, by which the kernel segments it into datagrams (GSO).
2. An error may concern another datagram: an ICMP error about an earlier datagram is reported by the next call, once.
   So the socket's error queue is drained and the same message is sent again. A message that is still refused counts as
   lost, and the messages behind it are sent. A message for which the device's queue had no room (ENOBUFS) counts as
   lost at once: it was dropped, perhaps in part, and sending it again now would not help.
3. A message with an ACK (`Burst.ack`) is one datagram of three pieces: header, payload, and a copy of the ACK.
4. Where the kernel or the device cannot segment (EIO, EINVAL, EMSGSIZE, ENOPROTOOPT), the same pairs are sent as one
   message per datagram. If that works, this socket does not use GSO any more.
"""

from __future__ import annotations

import errno
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Self

import numpy as np
import numpy.typing as npt

from srd.io import syscalls
from srd.io.socket import icmp_errors
from srd.io.syscalls import IOVEC, MMSGHDR, Address
from srd.proto.wire.data import (
    FEW_PACKETS,
    HEADER,
    HEADER_BYTES,
    MAX_ACK_WITH_DATA_BYTES,
    MAX_BURST_PACKETS,
    MAX_DATAGRAM_BYTES,
    MAX_TRAIN_PACKETS,
    Burst,
    write_headers,
)

PACKETS: Final = 2 * MAX_BURST_PACKETS
"""Packets queued for one system call: two of the largest bursts, as few consecutive bursts are on the same path."""
MESSAGES: Final = MAX_BURST_PACKETS
"""Messages queued for one system call: in the worst case each packet of a burst is a message."""
GSO_ERRORS: Final = (errno.EIO, errno.EINVAL, errno.EMSGSIZE, errno.ENOPROTOOPT)
"""Errors of kernels and devices that cannot segment (as handled by quinn-udp, msquic and quic-go)."""
MAX_TRIES: Final = 4
"""Calls before a message counts as refused: ICMP errors may arrive as fast as they are drained, about one per call."""
_CMSG: Final = struct.Struct("=QiiH6x")
_WORDS: Final = MMSGHDR.itemsize // 8
_LANES: Final = 6
_ACK_PIECES: Final = 3
_NAME, _NAME_BYTES, _IOV, _IOV_COUNT, _CONTROL, _CONTROL_BYTES = range(_LANES)  # 64-bit lanes of MMSGHDR
MAX_ACKS: Final = 64
"""Datagrams with an ACK that are queued for one system call: one peer hardly has two."""
FEW_MESSAGES: Final = 4
"""Up to so many messages are written one by one, more by NumPy, whose cost does not depend on the number."""
_INDEX: Final = np.arange(MAX_BURST_PACKETS, dtype=np.uint64)


@dataclass(frozen=True, slots=True)
class _CopiedPayload:
    """Bytes that the kernel reads at `address`; valid while this object is referenced."""

    array: npt.NDArray[np.uint8]
    address: int
    size_bytes: int

    @classmethod
    def of(cls, data: bytes) -> Self:
        array = np.frombuffer(data, np.uint8)
        return cls(array, array.ctypes.data, len(data))


@lru_cache(maxsize=256)
def _steps(segment_bytes: int) -> npt.NDArray[np.uint64]:
    """Return the offset of each payload of a burst from the first one."""
    return _INDEX * np.uint64(segment_bytes)


@lru_cache(maxsize=256)
def _message_steps(iov_bytes: int) -> npt.NDArray[np.uint64]:
    """Return row i: what message i of a burst adds, lane by lane, to the first. Each has `iov_bytes` of the iovec."""
    steps = np.zeros((MAX_BURST_PACKETS, _LANES), np.uint64)
    steps[:, _IOV] = _INDEX * np.uint64(iov_bytes)
    return steps


@lru_cache(maxsize=256)
def _segmentation(datagram_bytes: int) -> _CopiedPayload:
    """Return the UDP_SEGMENT control message for datagrams of this size."""
    return _CopiedPayload.of(_CMSG.pack(_CMSG.size - 6, socket.SOL_UDP, syscalls.UDP_SEGMENT, datagram_bytes))


@lru_cache(maxsize=1 << 16)
def _name(address: Address) -> _CopiedPayload:
    """Return the address as the kernel's sockaddr."""
    return _CopiedPayload.of(syscalls.pack_address(address))


def _per_message(datagram_bytes: int) -> int:
    return max(min(MAX_TRAIN_PACKETS, MAX_DATAGRAM_BYTES // datagram_bytes), 1)


class Transmitter:
    """Collects bursts from one port in `add`, sends them in `flush`. Reuses its arrays; allocates nothing per burst."""

    def __init__(
        self,
        *,
        drain: Callable[[socket.socket], object] = icmp_errors,
        overhead_bytes: int = HEADER_BYTES,
        pieces: int = 2,
    ) -> None:
        """Create a transmitter; `drain` drains a socket's error queue.

        `overhead_bytes`: what a datagram has beside the payload; `pieces`: where it lies in memory, 2: header and
        payload, each for itself, 1: together.
        """
        self._drain = drain
        self._overhead_bytes = overhead_bytes
        self._pieces = pieces
        self.port: int | None = None  # of the queued bursts, as `Burst.port`; None when there are none
        headers = np.zeros(PACKETS, HEADER)
        self._iov = np.zeros((PACKETS, pieces), IOVEC)
        self._iov[:, 0]["base"] = headers.ctypes.data + np.arange(PACKETS, dtype=np.uint64) * np.uint64(HEADER_BYTES)
        self._iov[:, 0]["length"] = HEADER_BYTES
        self._messages = np.zeros(MESSAGES, MMSGHDR)
        self._single = np.zeros(MAX_TRAIN_PACKETS, MMSGHDR)  # for the fallback: one message per datagram
        self._acks = np.zeros((MAX_ACKS, MAX_ACK_WITH_DATA_BYTES), np.uint8)
        self._ack_iov = np.zeros((MAX_ACKS, _ACK_PIECES), IOVEC)  # of the datagrams with one
        self._ack_iov_at = self._ack_iov.ctypes.data
        ack_rows = self._acks.ctypes.data + np.arange(MAX_ACKS, dtype=np.uint64) * np.uint64(MAX_ACK_WITH_DATA_BYTES)
        self._ack_iov[:, -1]["base"] = ack_rows
        self._ack_words, self._ack_bytes = self._ack_iov.view(np.uint64).reshape(-1).data, self._acks.reshape(-1).data
        self._ack_count = 0  # of these in use
        self._iov_at, self._messages_at = self._iov.ctypes.data, self._messages.ctypes.data
        # Flat views of 64-bit lanes: of the messages (see MMSGHDR), and of the iovec with two lanes per piece.
        # Writing a field of a structured array is slower.
        self._headers = headers.view(np.uint8).data
        lanes = self._messages.view(np.uint64)
        self._words, self._rows = lanes.data, lanes.reshape(MESSAGES, _WORDS)[:, :_LANES]
        self._pairs = self._iov.view(np.uint64).reshape(-1).data
        self._addresses, self._lengths = self._iov["base"][:, -1], self._iov["length"][:, -1]
        self._packets = 0  # rows in use
        self._count = 0  # messages in use
        self._first = 0  # index of the first message that has not been sent
        self._alive: list[_CopiedPayload] = []  # keeps alive what the messages in use point to
        self._bursts: list[tuple[Burst, int]] = []  # queued bursts, each with the message count up to its end
        self._no_gso: set[int] = set()  # descriptors of sockets that cannot segment

    def has_room_for(self, burst: Burst) -> bool:
        """Whether a burst can be added before the next `flush`."""
        if self.port is None:
            return True
        fits = self._packets + burst.count <= PACKETS and self._count + self.messages_of(burst) <= MESSAGES
        return fits and self.port == burst.port and (burst.ack is None or self._ack_count < MAX_ACKS)

    def messages_of(self, burst: Burst) -> int:
        """Return how many messages a burst is sent as."""
        return -(-burst.count // _per_message(self._overhead_bytes + burst.segment_bytes))

    def add(self, burst: Burst) -> None:
        """Queue a burst from the same port as the queued ones. Its payload is referred to, not copied."""
        first, count = self._packets, burst.count
        write_headers(burst, out=self._headers[first * HEADER_BYTES :])
        self._point(burst, first)
        self._describe(burst, first)
        if burst.ack is not None:
            self._append(burst.ack, row=first)
        self._bursts.append((burst, self._count))
        self._packets = first + count
        self.port = burst.port

    def _point(self, burst: Burst, first: int) -> None:
        """Point the iovec's rows from `first` on at the payloads of a burst."""
        count, segment = burst.count, burst.segment_bytes
        if burst.payload_addresses is not None:
            self._addresses[first : first + count], self._lengths[first : first + count] = (
                burst.payload_addresses,
                segment,
            )
        else:
            self._point_at(burst.payload_offset, first, count, segment=segment, size_bytes=burst.payload_bytes)

    def _append(self, ack: bytes, *, row: int) -> None:
        """Give the last message, whose header and payload are in a row of the iovec, an ACK as a third piece."""
        number, self._ack_count = self._ack_count, self._ack_count + 1
        words, pairs, at, size = self._ack_words, self._pairs, number * 2 * _ACK_PIECES, len(ack)
        start = number * MAX_ACK_WITH_DATA_BYTES
        self._ack_bytes[start : start + size] = ack
        words[at : at + 4] = pairs[4 * row : 4 * row + 4]
        words[at + 5] = size
        message = (self._count - 1) * _WORDS
        self._words[message + _IOV] = self._ack_iov_at + number * _ACK_PIECES * IOVEC.itemsize
        self._words[message + _IOV_COUNT] = _ACK_PIECES

    def _point_at(self, address: int, first: int, count: int, *, segment: int, size_bytes: int) -> None:
        """Point `count` rows at what lies back to back from `address`: `segment` bytes each, `size_bytes` in all."""
        lanes = 2 * self._pieces  # of a row; the payload's are the last two
        if count <= FEW_PACKETS:
            pairs, each = self._pairs, address
            for at in range(lanes * (first + 1) - 2, lanes * (first + count), lanes):
                pairs[at], pairs[at + 1] = each, segment
                each += segment
        else:
            end = first + count
            np.add(_steps(segment)[:count], np.uint64(address), out=self._addresses[first:end])
            self._lengths[first:end] = segment
        self._pairs[lanes * (first + count) - 1] = size_bytes - (count - 1) * segment

    def _describe(self, burst: Burst, first: int) -> None:
        """Write the kernel's messages for a burst whose rows begin at `first`."""
        datagram_bytes = self._overhead_bytes + burst.segment_bytes
        per_message = _per_message(datagram_bytes)
        name, control = _name(burst.address), _segmentation(datagram_bytes)
        self._alive += (name, control)
        row_bytes = self._pieces * IOVEC.itemsize
        iov_at, whole = self._iov_at + first * row_bytes, burst.count // per_message
        if whole > FEW_MESSAGES:
            control_bytes = control.size_bytes if per_message > 1 else 0
            pieces = self._pieces * per_message
            lanes = [name.address, name.size_bytes, iov_at, pieces, control.address, control_bytes]
            rows = self._rows[self._count : self._count + whole]
            np.add(_message_steps(per_message * row_bytes)[:whole], np.array(lanes, np.uint64), out=rows)
            self._count += whole
        else:
            whole = 0
        words, left = self._words, burst.count - whole * per_message
        iov_at += whole * per_message * row_bytes
        while left > 0:
            count = min(left, per_message)
            at = self._count * _WORDS
            words[at + _NAME], words[at + _NAME_BYTES] = name.address, name.size_bytes
            words[at + _IOV], words[at + _IOV_COUNT] = iov_at, self._pieces * count
            words[at + _CONTROL] = control.address
            words[at + _CONTROL_BYTES] = control.size_bytes if count > 1 else 0
            self._count += 1
            iov_at += count * row_bytes
            left -= count

    def flush(self, sock: socket.socket) -> bool:
        """Send the queued bursts; return False when the socket is full and messages remain."""
        fd = sock.fileno()
        tries, singly = 0, False  # of the first unsent message: calls so far, and whether to send it without GSO
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
        """Whether the first unsent message has several datagrams."""
        return int(self._messages[self._first]["iovlen"]) // self._pieces > 1

    def _advance(self, datagrams: int) -> None:
        """Remove the first `datagrams` datagrams from the first unsent message."""
        message = self._messages[self._first]
        pieces = self._pieces * datagrams
        if datagrams < int(message["iovlen"]) // self._pieces:
            message["iov"] += IOVEC.itemsize * pieces
            message["iovlen"] -= pieces
        else:
            self._first += 1

    def discard(self) -> None:
        """Discard all queued bursts; their packets count as lost."""
        self._packets = self._count = self._first = self._ack_count = 0
        self._alive.clear()
        self._bursts.clear()
        self.port = None

    def drop_unneeded(self, is_needed: Callable[[Burst], bool]) -> None:
        """Discard the queued bursts for which `is_needed` is false; their packets count as lost."""
        rows: list[int] = []
        kept: list[tuple[Burst, int]] = []
        first = 0
        for burst, end in self._bursts:
            if is_needed(burst):
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
        """Send each datagram of the first unsent message as a message of its own, as many as the socket takes."""
        message = self._messages[self._first]
        count = int(message["iovlen"]) // self._pieces
        single = self._single[:count]
        single["name"], single["namelen"] = message["name"], message["namelen"]
        single["iov"] = message["iov"] + _INDEX[:count] * np.uint64(self._pieces * IOVEC.itemsize)
        single["iovlen"] = int(message["iovlen"]) // count  # with an ACK there is one more
        self._advance(syscalls.sendmmsg(fd, messages=single.ctypes.data, count=count))
