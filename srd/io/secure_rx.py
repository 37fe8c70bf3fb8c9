"""Receiving encrypted data: the kernel fills a bounce buffer, and decrypting moves the payload to where it stays.

1. A slot is one iovec of 64 KiB. There are so few that the buffer stays in the cache between the kernel's copy and the
   decryption, which takes the place of the copy that a receiver without header-data split makes.
2. Payload is decrypted into memory of the pool, never into registered memory: the tag is known to be right only when
   the plain text has been written. What belongs to a write or a read is copied from there.
3. Packets that are not authentic leave nothing behind: the next one is decrypted to the same place, and only authentic
   packets are described to the core. Their payloads lie back to back, whatever size the datagrams have.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterable, Mapping
from typing import cast

import numpy as np
import numpy.typing as npt

from devmem.region import Region
from srd.io import syscalls
from srd.io.clock import wall_to_monotonic_s
from srd.io.packet_views import PacketViewCache
from srd.io.recvmmsg import RecvmmsgResults
from srd.io.rx_buffers import SUPER_BYTES
from srd.io.rx_memory import RxBatch, RxMemory
from srd.io.syscalls import IOVEC, Address
from srd.proto.events import Extent
from srd.proto.security import PacketProtection
from srd.proto.wire.data import HEADER_BYTES, MAX_BURST_PACKETS, PREFIX_BYTES, VERSION, GroDatagram, PacketType
from srd.proto.wire.protected import TAG_BYTES
from srd.secure.session import Session

SECURE_SLOTS = 8
"""Messages per system call: 512 KiB."""
_ROW_BYTES = SUPER_BYTES + PREFIX_BYTES
"""A slot, and room behind it: a last datagram may be too short for the prefix that `_parts` looks at."""
_OVERHEAD_BYTES = HEADER_BYTES + TAG_BYTES
_DATA = bytes([VERSION, PacketType.DATA])
_KIND = np.dtype("V2")
_CONTEXT = np.dtype("V8")
_CONTEXT_AT = 8


class SecureRxRing(RxMemory):
    """A receive queue for data that is encrypted with the keys of its peer."""

    def __init__(
        self,
        region: Region,
        *,
        chunk_bytes: int,
        protections: Mapping[int, PacketProtection],
        reserve_bytes: int = 0,
        number: int = 0,
    ) -> None:
        """Create a queue that receives into `region`; `protections`: a live view of the keys, by context."""
        self._flat = np.zeros((SECURE_SLOTS, _ROW_BYTES), np.uint8)
        self._plain_headers = np.zeros((SECURE_SLOTS * SUPER_BYTES // _OVERHEAD_BYTES, HEADER_BYTES), np.uint8)
        self._protections = protections
        super().__init__(region, chunk_bytes=chunk_bytes, reserve_bytes=reserve_bytes, number=number, slots=0)
        flat_iov = np.zeros(SECURE_SLOTS, IOVEC)
        flat_iov["base"] = self._flat.ctypes.data + np.arange(SECURE_SLOTS, dtype=np.uint64) * np.uint64(_ROW_BYTES)
        flat_iov["length"] = SUPER_BYTES
        self._flat_iov = flat_iov
        self._results = RecvmmsgResults(SECURE_SLOTS)
        rows = np.arange(SECURE_SLOTS, dtype=np.uint64) * np.uint64(IOVEC.itemsize)
        self._results.messages["iov"] = flat_iov.ctypes.data + rows
        self._results.messages["iovlen"] = 1
        self._header_bytes = self._plain_headers.reshape(-1).data
        self._flat_rows = [row.data for row in self._flat]
        self._views = PacketViewCache(self._flat.reshape(-1).data)
        self._used_headers = 0
        self._memory = memoryview(b"")  # the region, while a batch is received

    def _prepare(self) -> None:
        if self.refill is not None:
            self.refill()
        self.buffers.end_batch()
        self._results.reset(self._count)

    def receive(self, sock: socket.socket) -> RxBatch | None:
        """Receive one batch; return None when nothing is waiting. Raises OSError (among others for ICMP errors)."""
        self._prepare()
        self._count = SECURE_SLOTS  # a call that fails may have written to any slot
        count = self._count = syscalls.recvmmsg(sock.fileno(), messages=self._results.pointer, count=SECURE_SLOTS)
        if count == 0:
            return None
        batch = RxBatch(full=count == SECURE_SLOTS)
        self._open, self._used_headers = None, 0
        clock_offset_s, now = wall_to_monotonic_s(), time.monotonic()
        with memoryview(self._region) as self._memory:
            for slot in range(count):
                self._receive_flat(batch, slot, clock_offset_s, now=now)
        if self.memory_low:
            batch.low_region = self.number
        return batch

    def _reuse(self, datagrams: Iterable[GroDatagram], *, kept: Iterable[Extent]) -> None:
        super()._reuse(reversed(list(datagrams)), kept=kept)  # all lie in one chunk, which is reused from its end

    def _receive_flat(self, batch: RxBatch, slot: int, clock_offset_s: float, *, now: float) -> None:
        """Describe what landed in a slot: trains of data of one peer each, and control packets."""
        length, size, marked, seconds = self._results.read(slot)
        if length <= 0:
            self.refused_packets += length < 0
            return
        address, received_at = self._results.address(slot), seconds + clock_offset_s
        at = 0
        for end, is_data in self._parts(self._flat[slot], length=length, size=size):
            if is_data:
                self._receive_train(batch, slot, at, end, size, address, received_at, marked=marked, now=now)
            else:
                batch.controls.append((bytes(self._flat_rows[slot][at:end]), address, received_at))
            at = end

    def _parts(self, flat: npt.NDArray[np.uint8], *, length: int, size: int) -> list[tuple[int, bool]]:
        """Return the end of each part of a train, and whether it is data: packets of one context, 256 at most."""
        count = -(-length // size)
        if count == 1:
            return [(length, length >= HEADER_BYTES and flat.item(0) == VERSION and flat.item(1) == PacketType.DATA)]
        last_bytes = length - (count - 1) * size
        kinds = np.ndarray((count,), _KIND, flat, strides=(size,)).tobytes()
        contexts = np.ndarray((count,), _CONTEXT, flat, offset=_CONTEXT_AT, strides=(size,)).tobytes()
        if (
            kinds == _DATA * count
            and contexts == contexts[:8] * count
            and last_bytes >= HEADER_BYTES <= size
            and count <= MAX_BURST_PACKETS
        ):
            return [(length, True)]
        parts: list[tuple[int, bool]] = []  # a train of several kinds is rare: each datagram is a part
        for index in range(count):
            end = min((index + 1) * size, length)
            is_data = end - index * size >= HEADER_BYTES and kinds[2 * index : 2 * index + 2] == _DATA
            parts.append((end, is_data))
        return parts

    def _receive_train(
        self,
        batch: RxBatch,
        slot: int,
        start: int,
        end: int,
        size: int,
        address: Address,
        received_at: float,
        *,
        marked: bool,
        now: float,
    ) -> None:
        """Decrypt the datagrams from `start` to `end` of a slot, and describe those that are authentic."""
        row = self._flat_rows[slot]
        context = int.from_bytes(row[start + _CONTEXT_AT : start + _CONTEXT_AT + 8], "big")
        session = cast("Session | None", self._protections.get(context))
        length = end - start
        if length % size and length % size < _OVERHEAD_BYTES:
            length -= length % size  # no packet is that short
        if session is None or length <= 0 or min(size, length) < _OVERHEAD_BYTES:
            return
        first, size = self._used_headers, min(size, length)
        total_bytes = length - -(-length // size) * _OVERHEAD_BYTES
        offset = self.buffers.allocate_copy(total_bytes) if total_bytes else 0  # a header alone takes no memory
        if offset is None:
            self._drop_train(batch, session, row[start : start + length], size, context, now=now)
            return
        kept, payload_bytes = self._decrypt(session, slot, start, length, size, offset, now=now)
        if total_bytes:
            self.buffers.trim_copy(offset + payload_bytes)
        if not kept:
            return
        self._used_headers = first + kept
        self._describe_train(
            batch, first, kept, self._area + offset, payload_bytes, size - _OVERHEAD_BYTES, address, received_at,
            marked=marked,
        )  # fmt: skip

    def _decrypt(
        self, session: Session, slot: int, start: int, length: int, size: int, offset: int, *, now: float
    ) -> tuple[int, int]:
        """Decrypt a train to the region, at `offset`; return how many packets are authentic, and their payload."""
        views = self._views.get(slot * _ROW_BYTES + start, size_bytes=size, count=-(-length // size))
        if (last_bytes := length % size) > 0:
            header, sealed = views[-1]
            views[-1] = (header, sealed[: last_bytes - HEADER_BYTES])
        out = self._memory[offset:]
        kept = payload_bytes = 0
        if length > size:
            kept, payload_bytes = session.open_train_untrusted(views, out=out)
            session.unmark(self._copy_headers(self._flat[slot][start : start + length], kept, size))
        first, headers = self._used_headers, self._header_bytes
        for view, sealed in views[kept:]:  # what is not as expected
            header = headers[(first + kept) * HEADER_BYTES : (first + kept + 1) * HEADER_BYTES]
            header[:] = view
            after = payload_bytes + len(sealed) - TAG_BYTES
            if session.open_data_untrusted(header, sealed, out=out[payload_bytes:after], now=now):
                kept += 1
                payload_bytes = after
        return kept, payload_bytes

    def _copy_headers(self, datagrams: npt.NDArray[np.uint8], count: int, size: int) -> npt.NDArray[np.uint8]:
        """Copy the headers of the first `count` datagrams behind the used ones; return them, one a row."""
        rows = self._plain_headers[self._used_headers : self._used_headers + count]
        whole = min(count, len(datagrams) // size)
        rows[:whole] = datagrams[: whole * size].reshape(whole, size)[:, :HEADER_BYTES]
        if whole < count:
            rows[whole] = datagrams[whole * size : whole * size + HEADER_BYTES]
        return rows

    def _drop_train(
        self, batch: RxBatch, session: Session, datagrams: memoryview, size: int, context: int, *, now: float
    ) -> None:
        """Drop a train for which no memory is free; report that to its sender if its first packet is authentic."""
        self.refused_packets += 1
        sealed = datagrams[HEADER_BYTES : min(size, len(datagrams))]
        at = self._used_headers * HEADER_BYTES
        out = memoryview(bytearray(len(sealed) - TAG_BYTES))
        header = self._header_bytes[at : at + HEADER_BYTES]
        header[:] = datagrams[:HEADER_BYTES]
        if session.open_data_untrusted(header, sealed, out=out, now=now):
            batch.no_memory.add(context)

    def _describe_train(
        self,
        batch: RxBatch,
        first: int,
        count: int,
        offset: int,
        payload_bytes: int,
        segment_bytes: int,
        address: Address,
        received_at: float,
        *,
        marked: bool,
    ) -> None:
        """Add a train to the batch: as a continuation of the last one, if both lie back to back and are alike."""
        last = self._open
        if (
            last is not None
            and last.segment_bytes == segment_bytes
            and offset == last.payload_offset + last.payload_bytes
            and address == last.address
            and marked == last.ecn_ce
            and last.count + count <= MAX_BURST_PACKETS
        ):
            last.count += count
            last.payload_bytes += payload_bytes
            last.received_at = received_at
        else:
            headers = self._header_bytes[first * HEADER_BYTES :]
            last = GroDatagram(headers, count, offset, payload_bytes, segment_bytes, address, received_at, marked)
            batch.datagrams.append(last)
        self._open = last if payload_bytes == count * segment_bytes else None
