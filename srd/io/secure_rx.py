"""Receiving encrypted data: the kernel fills a bounce buffer, and decrypting moves the payload to where it stays.

1. A slot is one iovec of 64 KiB. So few are offered that the buffer stays in the cache between the kernel's copy and
   the decryption, which takes the place of the copy that a receiver without header-data split makes. Where no trains
   come (no GRO), more are: each has one datagram.
2. Payload is decrypted into memory of the pool, never into registered memory: the tag is known to be right only when
   the plain text has been written. What belongs to a write or a read is copied from there.
3. Packets that are not authentic leave nothing behind: the next one is decrypted to the same place, and only authentic
   packets are described to the core. Their payloads lie back to back, whatever size the datagrams have.
4. What is described together was opened with the keys of one context, and says so in each header. The tags alone do not
   show it: a peer may seal with its own keys a header that has the context of another.
5. A train, and single datagrams of one size in successive slots, are decrypted by one call as far as all is as
   expected. What is not is decrypted packet by packet.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterable, Mapping
from typing import Final, cast

import numpy as np

from devmem.region import Region
from srd.io import syscalls
from srd.io.clock import wall_to_monotonic_s
from srd.io.recvmmsg import RecvmmsgResults
from srd.io.rx_buffers import SUPER_BYTES
from srd.io.rx_memory import SLOTS, RxBatch, RxMemory
from srd.io.syscalls import IOVEC, Address
from srd.proto.base.security import PacketProtection
from srd.proto.events import Extent
from srd.proto.wire.data import HEADER_BYTES, MAX_BURST_PACKETS, PREFIX_BYTES, VERSION, GroDatagram, PacketType
from srd.proto.wire.protected import TAG_BYTES
from srd.secure.session import Session

SECURE_SLOTS: Final = 64
"""Messages per system call of single datagrams."""
TRAIN_SLOTS: Final = 8
"""Those while trains come: 512 KiB."""
SLOT_BYTES: Final = SUPER_BYTES + 33 * 64
"""From one slot to the next: not a power of two, by which all slots would share a few lines of the cache."""
_OVERHEAD_BYTES: Final = HEADER_BYTES + TAG_BYTES
_DATA: Final = bytes([VERSION, PacketType.DATA])
_CONTEXT_AT: Final = 8
_Source = tuple[Address, float, bool]
"""Where datagrams came from, when they were received, and whether they had a congestion mark."""
_Result = tuple[int, int, _Source]
"""What is in a slot: its bytes, the size of its datagrams, and their source."""


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
        flat = np.zeros(SECURE_SLOTS * SLOT_BYTES, np.uint8)
        self._headers = np.zeros(SECURE_SLOTS * (SUPER_BYTES // _OVERHEAD_BYTES) * HEADER_BYTES, np.uint8).data
        self._protections = protections
        super().__init__(region, chunk_bytes=chunk_bytes, reserve_bytes=reserve_bytes, number=number, slots=0)
        rows = np.arange(SECURE_SLOTS, dtype=np.uint64)
        self._iov = np.zeros(SECURE_SLOTS, IOVEC)
        self._iov["base"] = flat.ctypes.data + rows * np.uint64(SLOT_BYTES)
        self._iov["length"] = SUPER_BYTES
        self._results = RecvmmsgResults(SECURE_SLOTS)
        self._results.messages["iov"] = self._iov.ctypes.data + rows * np.uint64(IOVEC.itemsize)
        self._results.messages["iovlen"] = 1
        self._flat = flat.data
        self._expects_single = False
        self._used_headers = 0
        self._memory = memoryview(b"")  # the region, while a batch is received

    def _prepare(self) -> None:
        self.buffers.end_batch()
        self._results.reset(self._count)

    def receive(self, sock: socket.socket) -> RxBatch | None:
        """Receive one batch; return None when nothing is waiting. Raises OSError (among others for ICMP errors)."""
        self._prepare()
        most = SECURE_SLOTS if self._expects_single else TRAIN_SLOTS
        if self.batch_messages < SLOTS:
            most = min(self.batch_messages, TRAIN_SLOTS)
        self._count = most  # of which a call that fails may have written any
        self._expects_single = False
        count = self._count = syscalls.recvmmsg(sock.fileno(), messages=self._results.pointer, count=most)
        if count == 0:
            return None
        batch = RxBatch(full=count == most)
        self._open, self._used_headers = None, 0
        clock_offset_s, now = wall_to_monotonic_s(), time.monotonic()
        results = [self._read(slot, clock_offset_s) for slot in range(count)]
        self._expects_single = batch.full and all(length == size for length, size, _ in results)
        with memoryview(self._region) as self._memory:
            slot = 0
            while slot < count:
                slot += self._receive_slots(batch, slot, results, now=now)
        if self.memory_low:
            batch.low_region = self.number
        return batch

    def _reuse(self, datagrams: Iterable[GroDatagram], *, kept: Iterable[Extent]) -> None:
        super()._reuse(reversed(list(datagrams)), kept=kept)  # all lie in one chunk, which is reused from its end

    def _read(self, slot: int, clock_offset_s: float) -> _Result:
        length, size, marked, seconds = self._results.read(slot)
        return length, size, (self._results.address(slot), seconds + clock_offset_s, marked)

    def _receive_slots(self, batch: RxBatch, slot: int, results: list[_Result], *, now: float) -> int:
        """Describe what landed in a slot: a train of data as far as it is as expected, then each datagram by itself.

        Single datagrams that are alike are taken together; returns how many slots were.
        """
        length, size, source = results[slot]
        if length <= 0:
            self.refused_packets += length < 0
            return 1
        start = slot * SLOT_BYTES
        if length == size:
            count = self._alike(results, slot)
            at = self._receive_train(batch, start, SLOT_BYTES, size, count, size, source) if count > 1 else 0
            for each in range(slot + at, slot + count):
                self._receive_one(batch, each * SLOT_BYTES, each * SLOT_BYTES + size, results[each][2], now=now)
            return count
        count = min(-(-length // size), MAX_BURST_PACKETS)
        last_bytes = min(length - (count - 1) * size, size)
        at = self._receive_train(batch, start, size, size, count, last_bytes, source)
        for datagram in range(start + at * size, start + length, size):
            self._receive_one(batch, datagram, min(datagram + size, start + length), source, now=now)
        return 1

    def _alike(self, results: list[_Result], slot: int) -> int:
        """Return how many slots from this one on have one datagram each, of one size and source: a train at most."""
        _, size, (address, _, marked) = results[slot]
        count = 1
        for length, other_size, (other, _, is_marked) in results[slot + 1 : slot + SUPER_BYTES // size]:
            if length != size or other_size != size or other != address or is_marked != marked:
                break
            count += 1
        return count

    def _keys_of(self, start: int, end: int) -> tuple[int, Session] | None:
        """Return context and keys for the datagram from `start` to `end`; None: no data of an open peer."""
        flat = self._flat
        if end - start < _OVERHEAD_BYTES or flat[start : start + 2] != _DATA:
            return None
        context = int.from_bytes(flat[start + _CONTEXT_AT : start + PREFIX_BYTES], "big")
        session = self._protections.get(context)
        return None if session is None else (context, cast(Session, session))

    def _receive_train(
        self, batch: RxBatch, start: int, stride: int, size: int, count: int, last_bytes: int, source: _Source
    ) -> int:
        """Decrypt datagrams, one every `stride` bytes, as long as they continue the first; return how many did.

        Whether they do, their headers and tags show: each must say that it is of the first one's context and path.
        """
        keys = self._keys_of(start, start + size)
        if keys is None or size <= _OVERHEAD_BYTES:
            return 0
        context, session = keys
        if last_bytes < _OVERHEAD_BYTES:
            count, last_bytes = count - 1, size
        first, segment_bytes = self._used_headers, size - _OVERHEAD_BYTES
        offset = self.buffers.allocate_copy((count - 1) * segment_bytes + last_bytes - _OVERHEAD_BYTES)
        if offset is None:
            return 0
        kept = session.open_train_untrusted(
            self._flat,
            start=start,
            stride=stride,
            size_bytes=size,
            count=count,
            last_bytes=last_bytes,
            out=self._memory[offset:],
            headers=self._headers[first * HEADER_BYTES :],
        )
        payload_bytes = kept * segment_bytes - (size - last_bytes if kept == count else 0)
        self.buffers.trim_copy(offset + payload_bytes)
        if kept:
            self._used_headers = first + kept
            self._describe(batch, context, first, kept, offset, payload_bytes, segment_bytes, source)
        return kept

    def _receive_one(self, batch: RxBatch, start: int, end: int, source: _Source, *, now: float) -> None:
        """Describe one datagram: a control packet, or data that is authentic."""
        packet = self._flat[start:end]
        if end - start < HEADER_BYTES or packet[:2] != _DATA:
            batch.controls.append((bytes(packet), source[0], source[1]))
            return
        if (keys := self._keys_of(start, end)) is None:
            return
        context, session = keys
        first, size_bytes = self._used_headers, end - start - _OVERHEAD_BYTES
        offset = self.buffers.allocate_copy(size_bytes) if size_bytes else 0  # a header alone takes no memory
        if offset is None:
            self._drop(batch, context, session, packet, now=now)
            return
        out, header = self._memory[offset : offset + size_bytes], self._headers[first * HEADER_BYTES :]
        if session.open_data_untrusted(packet, out=out, header=header, now=now):
            self._used_headers += 1
            self._describe(batch, context, first, 1, offset, size_bytes, size_bytes, source)
        elif size_bytes:
            self.buffers.trim_copy(offset)

    def _drop(self, batch: RxBatch, context: int, session: Session, packet: memoryview, *, now: float) -> None:
        """Drop data for which no memory is free; report that to its sender, once in a batch, if it is authentic."""
        self.refused_packets += 1
        if context in batch.no_memory:
            return
        out, header = memoryview(bytearray(len(packet) - _OVERHEAD_BYTES)), memoryview(bytearray(HEADER_BYTES))
        if session.open_data_untrusted(packet, out=out, header=header, now=now):
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
            headers = self._headers[first * HEADER_BYTES :]
            last = GroDatagram(
                headers, count, offset, payload_bytes, segment_bytes, address, received_at, ecn_ce=marked
            )
            last.context = context
            batch.datagrams.append(last)
        self._open = last if payload_bytes == count * segment_bytes else None
