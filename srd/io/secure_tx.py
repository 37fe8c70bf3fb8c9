"""Sending encrypted bursts: each packet is encrypted from the application's memory into a stage that the kernel copies.

1. The stage is reused for every system call and small enough to stay in the cache, so that encrypting takes the place
   of the kernel's first touch of the payload. Packets lie in it back to back, so a packet is one piece for the kernel.
2. A burst is encrypted when it is queued, once: a path sequence has one content. What is dropped after that counts as
   lost, and is sent again under another path sequence. Queued bursts do not refer to the application's memory.
"""

from __future__ import annotations

import ctypes
import socket
import time
from collections.abc import Callable
from typing import Final, cast

import numpy as np

from srd.io.socket import icmp_errors
from srd.io.tx import Transmitter
from srd.proto.wire.data import HEADER_BYTES, Burst, write_headers
from srd.proto.wire.protected import STAGE_BYTES, TAG_BYTES
from srd.secure.session import Session

SLACK_BYTES: Final = 64 << 10
"""Room beyond the longest burst: bursts are limited by their payload, and each small packet has header and tag."""
OVERHEAD_BYTES: Final = HEADER_BYTES + TAG_BYTES
_Memory = ctypes.c_ubyte * STAGE_BYTES  # one type for all, as ctypes is slow to make another


def _memory(address: int) -> memoryview:
    """Return a view of this process's memory from `address`; only what belongs to the caller may be read."""
    return memoryview(_Memory.from_address(address)).cast("B")


class SecureTransmitter(Transmitter):
    """A transmitter for bursts that have a `protection`."""

    def __init__(self, *, drain: Callable[[socket.socket], object] = icmp_errors) -> None:
        """Create a transmitter; `drain` drains a socket's error queue."""
        super().__init__(drain=drain, overhead_bytes=OVERHEAD_BYTES, pieces=1)
        stage = np.zeros(STAGE_BYTES + SLACK_BYTES, np.uint8)
        self._stage, self._stage_address, self._stage_bytes = stage.data, stage.ctypes.data, len(stage)
        self._staged_bytes = 0

    def has_room_for(self, burst: Burst) -> bool:
        """Whether a burst can be added before the next `flush`."""
        needed_bytes = burst.carried_bytes + burst.count * OVERHEAD_BYTES
        fits = self._staged_bytes + needed_bytes <= self._stage_bytes
        return self.port is None or (fits and super().has_room_for(burst))

    def add(self, burst: Burst) -> None:
        """Queue a burst from the same port as the queued ones, encrypted."""
        first, count, start = self._packets, burst.count, self._staged_bytes
        segment_bytes = burst.segment_bytes if burst.ack is None else burst.carried_bytes
        size = segment_bytes + OVERHEAD_BYTES
        packets = self._stage[start:]
        write_headers(burst, out=packets, stride=size)
        sealed_bytes = cast(Session, burst.protection).seal_data(
            packets,
            _payloads(burst),
            count=count,
            segment_bytes=segment_bytes,
            path=burst.path,
            path_sequence=burst.path_sequence,
            now=time.monotonic(),
        )
        self._point_at(self._stage_address + start, first, count, segment=size, size_bytes=sealed_bytes)
        self._describe(burst, first)
        self._bursts.append((burst, self._count))
        self._staged_bytes = start + sealed_bytes
        self._packets = first + count
        self.port = burst.port

    def discard(self) -> None:
        """Discard all queued bursts; their packets count as lost."""
        super().discard()
        self._staged_bytes = 0


def _payloads(burst: Burst) -> list[memoryview]:
    """Return the payload of a burst, or that of each message of a batch."""
    if burst.payload_addresses is not None:
        return [_memory(address)[: burst.segment_bytes] for address in burst.payload_addresses.tolist()]
    if not burst.payload_bytes and burst.ack is None:
        return [memoryview(b"")] * burst.count
    payload = _memory(burst.payload_offset)[: burst.payload_bytes] if burst.payload_bytes else memoryview(b"")
    return [payload] if burst.ack is None else [memoryview(bytes(payload) + burst.ack)]
