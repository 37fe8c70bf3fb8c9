"""Receiving encrypted data: the kernel fills a bounce buffer, and decrypting moves the payload to where it stays.

1. A slot is one iovec of 64 KiB. There are so few that the buffer stays in the cache between the kernel's copy and the
   decryption, which takes the place of the copy that a receiver without header-data split makes.
2. Payload is decrypted into memory of the pool, never into registered memory: the tag is known to be right only when
   the plain text has been written. What belongs to a write or a read is copied from there.
3. Packets that are not authentic leave nothing behind: the next one is decrypted to the same place, and only authentic
   packets are described to the core. Their payloads lie back to back, whatever size the datagrams have.
4. What is described together was opened with the keys of one context, and says so in each header. The tags alone do not
   show it: a peer may seal with its own keys a header that has the context of another.
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
from srd.proto.wire.protected import FEW_HEADERS, TAG_BYTES
from srd.secure.session import PacketViews, Session

SECURE_SLOTS = 8
"""Messages per system call: 512 KiB."""
_OVERHEAD_BYTES = HEADER_BYTES + TAG_BYTES
_DATA = bytes([VERSION, PacketType.DATA])
_CONTEXT_AT = 8
_Source = tuple[Address, float, bool]
"""Where datagrams came from, when they were received, and whether they had a congestion mark."""


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
        self._flat = np.zeros((SECURE_SLOTS, SUPER_BYTES), np.uint8)
        self._plain_headers = np.zeros((SECURE_SLOTS * SUPER_BYTES // _OVERHEAD_BYTES, HEADER_BYTES), np.uint8)
        self._protections = protections
        super().__init__(region, chunk_bytes=chunk_bytes, reserve_bytes=reserve_bytes, number=number, slots=0)
        flat_iov = np.zeros(SECURE_SLOTS, IOVEC)
        flat_iov["base"] = self._flat.ctypes.data + np.arange(SECURE_SLOTS, dtype=np.uint64) * np.uint64(SUPER_BYTES)
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
        most = self._count = min(self.batch_messages, SECURE_SLOTS)  # of which a call that fails may have written any
        count = self._count = syscalls.recvmmsg(sock.fileno(), messages=self._results.pointer, count=most)
        if count == 0:
            return None
        batch = RxBatch(full=count == most)
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
        """Describe what landed in a slot: a train of data as far as it is as expected, then each datagram by itself."""
        length, size, marked, seconds = self._results.read(slot)
        if length <= 0:
            self.refused_packets += length < 0
            return
        source = (self._results.address(slot), seconds + clock_offset_s, marked)
        at = self._receive_train(batch, slot, length, size, source) if length > size else 0
        for start in range(at, length, size):
            self._receive_one(batch, slot, start, min(start + size, length), source, now=now)

    def _keys_of(self, row: memoryview, start: int, end: int) -> tuple[int, Session] | None:
        """Return context and keys for the datagram from `start` to `end` of a slot; None: no data of an open peer."""
        if end - start < _OVERHEAD_BYTES or row[start : start + 2] != _DATA:
            return None
        context = int.from_bytes(row[start + _CONTEXT_AT : start + PREFIX_BYTES], "big")
        session = self._protections.get(context)
        return None if session is None else (context, cast(Session, session))

    def _receive_train(self, batch: RxBatch, slot: int, length: int, size: int, source: _Source) -> int:
        """Decrypt datagrams as long as they continue the first one; return the bytes of those that did.

        Whether they do, their headers and tags show: each must say that it is of the first one's context and path.
        """
        row = self._flat_rows[slot]
        keys = self._keys_of(row, 0, size)
        count = min(length // size, MAX_BURST_PACKETS)
        last_bytes = length - count * size
        if keys is None or size - _OVERHEAD_BYTES <= 0:
            return 0
        context, session = keys
        views = self._views.get(slot * SUPER_BYTES, size_bytes=size, count=count)
        if _OVERHEAD_BYTES <= last_bytes < size and count < MAX_BURST_PACKETS:
            at = count * size
            views.append((row[at : at + HEADER_BYTES], row[at + HEADER_BYTES : length]))
        offset = self.buffers.allocate_copy(length - len(views) * _OVERHEAD_BYTES)
        if offset is None:
            return 0
        kept, payload_bytes = session.open_train_untrusted(row, views, out=self._memory[offset:])
        self.buffers.trim_copy(offset + payload_bytes)
        if kept:
            first = self._used_headers
            self._used_headers = first + kept
            session.restore_headers(self._copy_headers(views, first, kept, size, slot))
            self._describe(batch, context, first, kept, offset, payload_bytes, size - _OVERHEAD_BYTES, source)
        return min(kept * size, length)

    def _copy_headers(
        self, views: list[PacketViews], first: int, count: int, size: int, slot: int
    ) -> npt.NDArray[np.uint8]:
        """Copy the headers of the first `count` packets of a slot to row `first` on; return these rows."""
        rows, copied = self._plain_headers[first : first + count], 0
        if count > FEW_HEADERS:
            copied = count - (len(views[count - 1][1]) < size - HEADER_BYTES)
            rows[:copied] = self._flat[slot][: copied * size].reshape(copied, size)[:, :HEADER_BYTES]
        at = (first + copied) * HEADER_BYTES
        for header, _ in views[copied:count]:
            self._header_bytes[at : at + HEADER_BYTES] = header
            at += HEADER_BYTES
        return rows

    def _receive_one(self, batch: RxBatch, slot: int, start: int, end: int, source: _Source, *, now: float) -> None:
        """Describe one datagram: a control packet, or data that is authentic."""
        row = self._flat_rows[slot]
        if end - start < HEADER_BYTES or row[start : start + 2] != _DATA:
            batch.controls.append((bytes(row[start:end]), source[0], source[1]))
            return
        if (keys := self._keys_of(row, start, end)) is None:
            return
        context, session = keys
        at, size_bytes = self._used_headers * HEADER_BYTES, end - start - _OVERHEAD_BYTES
        header, sealed = self._header_bytes[at : at + HEADER_BYTES], row[start + HEADER_BYTES : end]
        offset = self.buffers.allocate_copy(size_bytes) if size_bytes else 0  # a header alone takes no memory
        if offset is None:
            self._drop(batch, context, session, row[start:end], now=now)
            return
        header[:] = row[start : start + HEADER_BYTES]
        is_authentic = session.open_data_untrusted(
            header, sealed, out=self._memory[offset : offset + size_bytes], now=now
        )
        if is_authentic:
            self._used_headers += 1
            self._describe(batch, context, self._used_headers - 1, 1, offset, size_bytes, size_bytes, source)
        elif size_bytes:
            self.buffers.trim_copy(offset)

    def _drop(self, batch: RxBatch, context: int, session: Session, datagram: memoryview, *, now: float) -> None:
        """Drop data for which no memory is free; report that to its sender, once in a batch, if it is authentic."""
        self.refused_packets += 1
        if context in batch.no_memory:
            return
        header, sealed = memoryview(bytearray(datagram[:HEADER_BYTES])), datagram[HEADER_BYTES:]
        out = memoryview(bytearray(len(sealed) - TAG_BYTES))
        if session.open_data_untrusted(header, sealed, out=out, now=now):
            batch.no_memory.add(context)

    def _describe(
        self,
        batch: RxBatch,
        context: int,
        first: int,
        count: int,
        at: int,
        payload_bytes: int,
        segment_bytes: int,
        source: _Source,
    ) -> None:
        """Add packets to the batch: as a continuation of the last ones, if both lie back to back and are alike.

        `context`: whose keys have opened them; `first`: row of the first header; `at`: where the payload lies in the
        region.
        """
        last, offset, (address, received_at, marked) = self._open, self._area + at, source
        if (
            last is None
            or last.segment_bytes != segment_bytes
            or not last.extend(
                count=count,
                payload_offset=offset,
                payload_bytes=payload_bytes,
                address=address,
                received_at=received_at,
                ecn_ce=marked,
                context=context,
            )
        ):
            headers = self._header_bytes[first * HEADER_BYTES :]
            last = GroDatagram(headers, count, offset, payload_bytes, segment_bytes, address, received_at, marked)
            last.context = context
            batch.datagrams.append(last)
        self._open = last if payload_bytes == count * segment_bytes else None
