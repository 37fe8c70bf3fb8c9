"""The kernel's metadata of each message of `recvmmsg`: length, segment size, ECN mark, timestamp and sender.

It is read through flat views of lanes (see MMSGHDR and CONTROL), as a field of a structured array is slower to access.
"""

from __future__ import annotations

import socket
from typing import Final

import numpy as np

from srd.io import syscalls
from srd.io.syscalls import MMSGHDR, SOCKADDR_BYTES, Address

# Control messages come in this order (net/ipv4/udp.c, udp_recvmsg; net/ipv6/udp.c): a receive timestamp, always, as
# SO_TIMESTAMPNS is set; the segment size, if the message is a train; the TOS (a byte) or traffic class (an integer),
# always. Its low two bits are ECN's; GRO merges no datagrams that differ in them (net/ipv4/af_inet.c,
# inet_gro_receive).
CONTROL: Final = np.dtype(
    [
        ("time_header", "u1", 16),
        ("seconds", "<i8"),
        ("nanoseconds", "<i8"),
        ("gro_header", "u1", 16),
        ("gro_size", "<i4"),
        ("room", "u1", 44),
    ]
)
_WITH_GRO_BYTES: Final = 80
_TOS_ALONE, _TOS_WITH_GRO, _CE = 48, 72, 3  # offsets of the TOS byte; both ECN bits set: congestion experienced
_MSG_TRUNC: Final = int(socket.MSG_TRUNC)  # a plain integer, as an enum's & is slower
# Lanes of a message (32 bits), and of a control buffer as times (64 bits) and as sizes (32 bits).
_RESULT_WORDS, _NAME_LENGTH, _CONTROL_LENGTH, _FLAGS, _LENGTH = MMSGHDR.itemsize // 4, 2, 10, 12, 14
_TIME_WORDS, _SECONDS, _NANOSECONDS = CONTROL.itemsize // 8, 2, 3
_SIZE_WORDS, _GRO_SIZE = CONTROL.itemsize // 4, 12
_MAX_ADDRESSES: Final = 1 << 16


class RecvmmsgResults:
    """The headers of `slots` messages (`messages`, at address `pointer`), and what the kernel writes into them."""

    def __init__(self, slots: int) -> None:
        rows = np.arange(slots, dtype=np.uint64)
        self.messages = np.zeros(slots, MMSGHDR)
        self.pointer = self.messages.ctypes.data
        self._names = np.zeros((slots, SOCKADDR_BYTES), np.uint8)
        self._control = np.zeros(slots, CONTROL)
        self.messages["name"] = self._names.ctypes.data + rows * np.uint64(SOCKADDR_BYTES)
        self.messages["control"] = self._control.ctypes.data + rows * np.uint64(CONTROL.itemsize)
        self._words = self.messages.view(np.uint32).data
        self._times = self._control.view(np.int64).data
        self._sizes = self._control.view(np.int32).data
        self._control_bytes = self._control.view(np.uint8).data
        self._name_bytes = [name.data for name in self._names]
        self._addresses: dict[bytes, Address] = {}
        self.reset(slots)

    def reset(self, count: int) -> None:
        """Restore the fields that the kernel has overwritten in the first `count` messages, before the next call."""
        words = self._words
        for row in range(0, count * _RESULT_WORDS, _RESULT_WORDS):
            words[row + _NAME_LENGTH], words[row + _CONTROL_LENGTH] = SOCKADDR_BYTES, CONTROL.itemsize

    def read(self, slot: int) -> tuple[int, int, bool, float]:
        """Return length, segment size, whether it was marked ECN-CE, and the receive timestamp (wall clock, seconds).

        The length is -1 for a message that was longer than its slot and so was truncated.
        """
        words, row = self._words, slot * _RESULT_WORDS
        length = -1 if words[row + _FLAGS] & _MSG_TRUNC else words[row + _LENGTH]
        train = words[row + _CONTROL_LENGTH] >= _WITH_GRO_BYTES
        size = self._sizes[slot * _SIZE_WORDS + _GRO_SIZE] if train else length
        tos_at = slot * CONTROL.itemsize + (_TOS_WITH_GRO if train else _TOS_ALONE)
        at = slot * _TIME_WORDS
        seconds = self._times[at + _SECONDS] + self._times[at + _NANOSECONDS] * 1e-9
        return length, size, self._control_bytes[tos_at] & _CE == _CE, seconds

    def address(self, slot: int) -> Address:
        """Return the sender's address."""
        raw = self._name_bytes[slot].tobytes()
        address = self._addresses.get(raw)
        if address is None:
            if len(self._addresses) >= _MAX_ADDRESSES:
                self._addresses.clear()
            address = self._addresses[raw] = syscalls.unpack_address(raw)
        return address
