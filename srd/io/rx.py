"""Receiving: the kernel scatters headers into one array and payloads back to back into a region.

Theory of operation. A slot is one message of `recvmmsg`. Its iovec alternates header and payload, with as many pairs
as a GRO super-datagram may have segments. If the segments have the expected size (a header and `payload_bytes`), the
headers land in the slot's row of the header array and the payloads contiguously in the slot's chunk of the pool. This
is header-data split in software, and the only receive path that copies no payload.

Rules.
1. The payloads of a `GroDatagram` always lie back to back. Datagrams that did not land that way are copied, a whole
   segment train at a time, and counted (`bytes_copied`): trains of another segment size, and trains of small datagrams,
   all of which land in the payload buffer of one.
2. Data is accepted only if it names the context of an open peer. Other data is dropped before it takes memory.
3. The layout of the slots depends only on the data that the core keeps of open peers. When most of the recent data had
   another segment size, all slots are laid out for that size (`_expect`), and only between two batches.

`rx_buffers` chooses where each slot's payload lands, and handles an empty pool.
"""

from __future__ import annotations

import socket
from collections.abc import Container, Sequence
from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt

from devmem.region import Region
from srd.io import syscalls
from srd.io.clock import wall_to_monotonic_s
from srd.io.recvmmsg import RecvmmsgResults
from srd.io.rx_buffers import SUPER_BYTES
from srd.io.rx_memory import SLOTS, RxBatch, RxMemory
from srd.io.syscalls import IOVEC, Address
from srd.proto.wire.data import (
    FEW_PACKETS,
    HEADER,
    HEADER_BYTES,
    HEADER_LANES,
    MAX_BURST_PACKETS,
    MAX_DATAGRAM_BYTES,
    MAX_TRAIN_PACKETS,
    SMALL_BYTES,
    VERSION,
    GroDatagram,
    PacketType,
    is_one_burst_untrusted,
)

FEW_SLOTS: Final = 3
"""Up to this many slots are aimed one by one, as that costs less than the array operation over all slots."""
MIN_EXPECTED_BYTES: Final = SUPER_BYTES // MAX_TRAIN_PACKETS
"""Smallest datagram size that slots are laid out for: with less, a slot would not hold a whole super-datagram."""

LAYOUT_BYTES: Final = 4 << 20
"""Data kept between two decisions on the layout: enough to make the cost of a new layout negligible."""
CONTEXT_LANE, SENT_LANE, SENT_MASK = 1, 3, 0xFFFFFFFF
"""Where a header has the receiver's context and the time of sending, in 64-bit lanes of this (little-endian) host."""
_DATA: Final = int(PacketType.DATA)  # a plain integer, as comparing with an enum's member is slower
_DATA_PREFIX: Final = np.array([VERSION, _DATA], np.uint8)


@lru_cache(maxsize=SMALL_BYTES)
def _datagram_type(payload_bytes: int) -> np.dtype[np.void]:
    """Return the type of a small datagram; to copy it as an item costs less than to copy a row of bytes."""
    return np.dtype([("header", f"V{HEADER_BYTES}"), ("payload", f"V{payload_bytes}")])


class RxRing(RxMemory):
    """Receives from sockets into a region; see `RxMemory` for the order of calls."""

    def __init__(
        self,
        region: Region,
        *,
        chunk_bytes: int,
        datagram_bytes: int,
        contexts: Container[int],
        reserve_bytes: int = 0,
        number: int = 0,
    ) -> None:
        """Create a queue that receives into `region`.

        `contexts` is a live view of the open peers' contexts; data of other contexts is dropped. While less than
        `reserve_bytes` of memory is free, admission control applies (`endpoint.admission`).
        """
        super().__init__(region, chunk_bytes=chunk_bytes, reserve_bytes=reserve_bytes, number=number, slots=SLOTS)
        self._contexts = contexts
        self._headers = np.zeros(SLOTS * MAX_TRAIN_PACKETS, HEADER)
        self._extras = np.zeros(SLOTS, HEADER)
        self._iov = np.zeros((SLOTS, MAX_TRAIN_PACKETS + 1, 2), IOVEC)
        self._iov[:, :, 0]["length"] = HEADER_BYTES
        self._words = self._iov.view(np.uint64).reshape(-1).data  # of each piece base and length
        self._address = region.address
        self._results = RecvmmsgResults(SLOTS)
        rows = np.arange(SLOTS, dtype=np.uint64)
        self._results.messages["iov"] = self._iov.ctypes.data + rows * np.uint64(self._iov[0].nbytes)
        self._next_slot = 0
        self._lanes = self._headers.view(np.uint64).data
        self._series: list[GroDatagram] = []  # the last datagrams, whose headers lie back to back: maybe of one burst
        self._sent_lane = -1  # the time of sending of the train that the next slot may continue, as it lies in a header
        self._known_lane = -1  # the context of an open peer, as it lies in a header, that this batch brought; -1: none
        self._expect(datagram_bytes)

    # -- memory -------------------------------------------------------------------------------------------------

    def _expect(self, datagram_bytes: int) -> None:
        """Lay the iovecs out for datagrams of this size."""
        self.payload_bytes = datagram_bytes - HEADER_BYTES
        self._segments = train = min(MAX_DATAGRAM_BYTES // datagram_bytes, MAX_TRAIN_PACKETS)
        self._train_bytes = train * datagram_bytes
        self._results.messages["iovlen"] = 2 * (train + 1)
        # Slot after slot, so that the headers of whole trains lie back to back, as their payloads may. GRO may append
        # a short datagram to a whole train: its header and payload land elsewhere (`_extras`, scratch).
        at = np.arange(SLOTS * train, dtype=np.uint64).reshape(SLOTS, train)
        self._iov[:, :train, 0]["base"] = self._headers.ctypes.data + at * np.uint64(HEADER_BYTES)
        self._iov[:, train, 0]["base"] = self._extras.ctypes.data + np.arange(SLOTS) * np.uint64(HEADER_BYTES)
        extra = np.uint64(self._region.address + train * self.payload_bytes)
        self._iov[:, train, 1]["base"] = np.array(self.buffers.scratch, np.uint64) + extra
        self._iov[:, :, 1]["length"] = self.payload_bytes
        header_bytes = self._headers.view(np.uint8).data
        self._rows = [header_bytes[slot * train * HEADER_BYTES :] for slot in range(SLOTS)]
        payload_at = np.arange(train, dtype=np.uint64) * np.uint64(self.payload_bytes)
        self._steps = payload_at + np.uint64(self._region.address)  # what is added to a slot's cursor
        self._bases = self._iov["base"][:, :train, 1]
        self.buffers.lay_out(train_bytes=train * self.payload_bytes)
        self._aim(range(SLOTS))

    def _aim(self, slots: Sequence[int]) -> None:
        """Point the payload iovecs of `slots` at their cursors, back to back."""
        if len(slots) <= FEW_SLOTS:
            for slot in slots:
                self._aim_one(slot, self.buffers.cursors[slot])
            return
        np.add(self._steps, np.array(self.buffers.cursors, np.uint64)[:, np.newaxis], out=self._bases)

    def _aim_one(self, slot: int, cursor: int) -> None:
        """Point the payload iovecs of a slot at a cursor: few of them without NumPy."""
        if self._segments > FEW_PACKETS:
            np.add(self._steps, np.uint64(cursor), out=self._bases[slot])
            return
        words, at, address = self._words, 4 * slot * (MAX_TRAIN_PACKETS + 1) + 2, self._address + cursor
        for _ in range(self._segments):
            words[at] = address
            at += 4
            address += self.payload_bytes

    def _prepare(self) -> None:
        """Prepare the slots for a batch. What the core kept of the last batch must be committed."""
        self._aim(self.buffers.end_batch())
        self._copied.clear()
        if self._copied_bytes and self._kept_bytes - self._decided_bytes >= LAYOUT_BYTES:
            self._choose_layout()
        self._results.reset(self._count)

    def _choose_layout(self) -> None:
        """Lay the slots out for another size if more than three quarters of the recently kept data came in it.

        With two peers of different sizes and equal rates the layout stays, and the data of one of them is copied.
        """
        size, most_bytes = max(self._copied_bytes.items(), key=lambda item: item[1])
        if 4 * most_bytes > 3 * (self._kept_bytes - self._decided_bytes):
            self._expect(size)
        self._copied_bytes.clear()

    # -- receiving ----------------------------------------------------------------------------------------------

    def receive(self, sock: socket.socket) -> RxBatch | None:
        """Receive one batch; return None when nothing is waiting. Raises OSError (among others for ICMP errors)."""
        self._prepare()
        most = self._count = min(self.batch_messages, SLOTS)  # a call that fails may have written to any of these slots
        count = self._count = syscalls.recvmmsg(sock.fileno(), messages=self._results.pointer, count=most)
        if count == 0:
            return None
        batch = RxBatch(full=count == most)
        self._open, self._known_lane = None, -1
        clock_offset_s = wall_to_monotonic_s()
        for slot in range(count):
            self._receive_slot(batch, slot, clock_offset_s)
        self._end_series()
        if self.memory_low:
            batch.low_region = self.number
        return batch

    def _receive_slot(self, batch: RxBatch, slot: int, clock_offset_s: float) -> None:
        """Describe what landed in a slot: a datagram, or a train of equal ones (the last may be shorter)."""
        length, size, marked, seconds = self._results.read(slot)
        if length <= 0:
            self.refused_packets += length < 0  # truncated; an empty datagram is ignored
            return
        received_at = seconds + clock_offset_s
        address, headers = self._results.address(slot), self._rows[slot]
        expected = HEADER_BYTES + self.payload_bytes
        is_data = length >= HEADER_BYTES and headers[0] == VERSION and headers[1] == _DATA
        fits = is_data and (size == expected or size == length < expected) and length <= self._train_bytes
        if fits and (tail_bytes := length % size) >= HEADER_BYTES:  # GRO may end a train with a control packet
            fits = headers[(length - tail_bytes) // size * HEADER_BYTES + 1] == _DATA
        if size >= length <= expected and (length < HEADER_BYTES or headers[0] != VERSION or headers[1] != _DATA):
            batch.controls.append((self._first(slot, length), address, received_at))
        elif is_data and HEADER_BYTES < size < SMALL_BYTES and size < length <= expected and not length % size:
            self._receive_small(batch, slot, length, size, address, received_at, marked=marked)
        elif not fits:
            self._receive_copied(batch, slot, length, size, address, received_at, marked=marked)
        elif not self._is_slot_known(slot, headers, length // size):
            return
        elif self.buffers.is_scratch(slot) and length > HEADER_BYTES:
            self._drop(batch, headers)
        else:
            count, length = _whole(length, size)
            payload_bytes = length - count * HEADER_BYTES
            offset = self._area + (self.buffers.consume(slot, payload_bytes) if payload_bytes else 0)
            payload = (offset, payload_bytes, size - HEADER_BYTES)
            self._add(batch, slot, count, payload, address, received_at, marked=marked)
            if length < self._train_bytes:
                self._open = None

    def _add(
        self,
        batch: RxBatch,
        slot: int,
        count: int,
        payload: tuple[int, int, int],
        address: Address,
        received_at: float,
        *,
        marked: bool,
    ) -> None:
        """Add a train to the batch, or to the train before, if both are of one burst and all of it lies back to back.

        `payload`: where it landed, its bytes in all, and those of each packet.
        """
        offset, payload_bytes, segment_bytes = payload
        last, sent_lane = self._open, self._lanes[slot * self._segments * HEADER_LANES + SENT_LANE] & SENT_MASK
        continues = last is not None and slot == self._next_slot and sent_lane == self._sent_lane
        if (
            last is None
            or not continues
            or not last.extend(
                count=count,
                payload_offset=offset,
                payload_bytes=payload_bytes,
                address=address,
                received_at=received_at,
                ecn_ce=marked,
            )
        ):
            if not continues:
                self._end_series()
            headers = self._rows[slot]
            last = GroDatagram(
                headers, count, offset, payload_bytes, segment_bytes, address, received_at, ecn_ce=marked
            )
            batch.datagrams.append(last)
            self._series.append(last)
            self._sent_lane = sent_lane
        self._open, self._next_slot = last, slot + 1

    def _end_series(self) -> None:
        """Compare the headers of successive trains in one go: the payload of a burst may lie in several chunks."""
        series = self._series
        if len(series) > 1:
            count, segment_bytes = sum([datagram.count for datagram in series]), series[0].segment_bytes
            if count <= MAX_BURST_PACKETS and is_one_burst_untrusted(
                series[0].headers, count=count, segment_bytes=segment_bytes
            ):
                for datagram in series:
                    datagram.is_one_burst = True
        series.clear()

    def _is_slot_known(self, slot: int, headers: memoryview, count: int) -> bool:
        """Whether what landed in a slot is of an open peer. Nearly always it is of that of the slot before."""
        lane = self._lanes[slot * self._segments * HEADER_LANES + CONTEXT_LANE]
        if lane == self._known_lane:
            return True
        if not self._is_known(headers, count):
            return False
        if int.from_bytes(headers[8:16], "big") in self._contexts:
            self._known_lane = lane
        return True

    def _is_known(self, headers: memoryview, count: int) -> bool:
        """Whether one of these headers names an open peer; nearly always the first one does."""
        for at in range(8, count * HEADER_BYTES, HEADER_BYTES):
            if int.from_bytes(headers[at : at + 8], "big") in self._contexts:
                return True
        return False

    def _drop(self, batch: RxBatch, headers: memoryview) -> None:
        self.refused_packets += 1
        batch.no_memory.add(int.from_bytes(headers[8:16], "big"))

    # -- what has to be copied ------------------------------------------------------------------------------------

    def _receive_small(
        self, batch: RxBatch, slot: int, length: int, size: int, address: Address, received_at: float, *, marked: bool
    ) -> None:
        """Describe a train of small datagrams, all of which landed in the buffer of one: move the payloads together."""
        count, payload = length // size, size - HEADER_BYTES
        start = self.buffers.cursors[slot]
        region = self._region.array
        others = region[start + payload : start + length - HEADER_BYTES].view(_datagram_type(payload))
        headers = memoryview(self._rows[slot][:HEADER_BYTES].tobytes() + others["header"].tobytes())
        if not self._is_known(headers, count):
            return
        if self.buffers.is_scratch(slot):
            self._drop(batch, headers)
            return
        offset = self.buffers.consume(slot, count * payload)
        # Payload i moves down by i headers. NumPy copies overlapping data through a temporary.
        payloads = others["payload"]
        region[offset + payload : offset + count * payload].view(payloads.dtype)[:] = payloads
        self.bytes_copied += (count - 1) * payload
        batch.datagrams.append(
            GroDatagram(
                headers, count, self._area + offset, count * payload, payload, address, received_at, ecn_ce=marked
            )
        )

    def _receive_copied(
        self, batch: RxBatch, slot: int, length: int, size: int, address: Address, received_at: float, *, marked: bool
    ) -> None:
        """Split a message into its datagrams: copy data payloads to a buffer, collect the others as control packets."""
        stream = self._gather(slot, length)
        if size >= HEADER_BYTES:
            whole = stream[: length - length % size].reshape(-1, size)
            tail = stream[len(whole) * size :]
            ends_well = len(tail) < HEADER_BYTES or bool((tail[:2] == _DATA_PREFIX).all())
            if ends_well and (whole[:, :2] == _DATA_PREFIX).all():
                self._copy(batch, stream, size, address, received_at, marked=marked)
                return
        for start in range(0, length, max(size, 1)):
            piece = stream[start : start + size]
            if len(piece) >= HEADER_BYTES and (piece[:2] == _DATA_PREFIX).all():
                self._copy(batch, piece, len(piece), address, received_at, marked=marked)
            else:
                batch.controls.append((piece.tobytes(), address, received_at))

    def _first(self, slot: int, length: int) -> bytes:
        """Reassemble a packet that fits into the first header and payload pair; nearly always an ACK."""
        start, rest = self.buffers.cursors[slot], length - HEADER_BYTES
        head = self._rows[slot][: min(length, HEADER_BYTES)].tobytes()
        return head + self._region[start : start + rest] if rest > 0 else head

    def _gather(self, slot: int, length: int) -> npt.NDArray[np.uint8]:
        """Reassemble a message from the header and payload pairs that it was scattered to."""
        size, start = self.payload_bytes, self.buffers.cursors[slot]
        region, rows = self._region.array, np.frombuffer(self._rows[slot], np.uint8)
        whole = min(length // (HEADER_BYTES + size), self._segments)
        stream = np.empty(length, np.uint8)
        pairs = stream[: whole * (HEADER_BYTES + size)].reshape(whole, HEADER_BYTES + size)
        pairs[:, :HEADER_BYTES] = rows[: whole * HEADER_BYTES].reshape(whole, HEADER_BYTES)
        pairs[:, HEADER_BYTES:] = region[start : start + whole * size].reshape(whole, size)
        if (rest := stream[pairs.size :]).size:  # the last pair, which may be the extra one behind a whole train
            head = (
                rows[whole * HEADER_BYTES :] if whole < self._segments else self._extras[slot : slot + 1].view(np.uint8)
            )
            start = start + whole * size if whole < self._segments else self.buffers.scratch[slot] + whole * size
            rest[:HEADER_BYTES] = head[: min(rest.size, HEADER_BYTES)]
            rest[HEADER_BYTES:] = region[start : start + max(rest.size - HEADER_BYTES, 0)]
        return stream

    def _copy(
        self,
        batch: RxBatch,
        stream: npt.NDArray[np.uint8],
        size: int,
        address: Address,
        received_at: float,
        *,
        marked: bool,
    ) -> None:
        """Copy the payloads of a train of data packets of `size` bytes to a buffer of their own, back to back."""
        count, length = _whole(len(stream), size)
        full, segment = length // size, size - HEADER_BYTES
        train, tail = stream[: full * size].reshape(full, size), stream[full * size : length]
        headers = memoryview(train[:, :HEADER_BYTES].tobytes() + tail[:HEADER_BYTES].tobytes())
        if not self._is_known(headers, count):
            return
        offset, payload_bytes = 0, length - count * HEADER_BYTES
        if payload_bytes:
            start = self.buffers.allocate_copy(payload_bytes)
            if start is None:
                self._drop(batch, headers)
                return
            target = self._region.array[start : start + payload_bytes]
            target[: full * segment].reshape(full, segment)[:] = train[:, HEADER_BYTES:]
            target[full * segment :] = tail[HEADER_BYTES:]
            offset = self._area + start
            self.bytes_copied += payload_bytes
            if count > 1 and size >= MIN_EXPECTED_BYTES:
                self._copied.append((offset, offset + payload_bytes, size))
        batch.datagrams.append(
            GroDatagram(headers, count, offset, payload_bytes, segment, address, received_at, ecn_ce=marked)
        )


def _whole(length: int, size: int) -> tuple[int, int]:
    """Return how many datagrams of `size` bytes a train of `length` bytes has, and their total length.

    A last datagram that is shorter than a header does not count.
    """
    count = -(-length // size)
    if length - (count - 1) * size < HEADER_BYTES:
        return count - 1, (count - 1) * size
    return count, length
