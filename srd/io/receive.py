"""Receiving: the kernel scatters headers into one array and payloads back to back into a region.

Theory of operation. A slot is one message of `recvmmsg`: its iovec alternates header and payload, as many pairs as a
GRO super-datagram may have segments. With segments of the expected size (header and `payload_bytes`) the headers land
in the slot's row of the header array, and the payloads contiguous in the slot's chunk of the pool. That is header-data
split in software, and the only path that touches no byte of payload.

A series of small datagrams whole fits into one such place: payloads lie there with their headers in between, of which
the core gets a copy. (A sender makes no longer series of them.)

What does not fit takes the slower path, which is right: a super-datagram of another size is put together, cut, and its
payloads are copied (and counted); control packets become bytes. A size that keeps coming becomes the expected one.

`landing` says where each slot's payload goes, and what happens when the pool is empty.

An endpoint may have several receive queues, each with sockets and a region of its own. Outside of it, a place in its
region has the queue's number in the upper 16 bits (io_uring zcrx's area); inside, places are offsets.
"""

from __future__ import annotations

import ctypes
import socket
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from devmem.pool import Pool
from devmem.region import Region
from devmem.uapi import AREA_SHIFT
from srd.io import libc
from srd.io.clock import wall_to_monotonic_s
from srd.io.landing import SUPER_BYTES, Landing, spare_bytes
from srd.io.libc import IOVEC, Address
from srd.io.prediction import PLACED, Prediction
from srd.io.results import Results
from srd.proto.events import Frag, Placement
from srd.proto.shortage import Shortage
from srd.proto.wire import (
    HEADER,
    HEADER_BYTES,
    MAX_BURST_PACKETS,
    MAX_DATAGRAM_BYTES,
    MAX_SERIES_PACKETS,
    SMALL_BYTES,
    VERSION,
    Arrival,
    PacketType,
)

SLOTS = 16
"""Messages of one system call: with GRO 1 MiB, without it enough to pay for the call."""

FEW_SLOTS = 3
"""Up to so many slots are aimed one by one (1 us each), more all at once (4 us)."""
MIN_EXPECTED_BYTES = SUPER_BYTES // MAX_SERIES_PACKETS
"""Least datagram size that slots are laid out for: with smaller ones a slot would not hold a whole super-datagram."""

_DATA = int(PacketType.DATA)  # a plain integer: an enum's member costs ten times as much
_DATA_PREFIX = bytes([VERSION, _DATA])


@dataclass(slots=True)
class Batch:
    """What one system call brought."""

    arrivals: list[Arrival] = field(default_factory=list)
    controls: list[tuple[bytes, Address, float]] = field(default_factory=list)
    unready: set[int] = field(default_factory=set)
    """Contexts of data that was dropped for want of memory."""
    full: bool = False
    """Whether every slot was filled, so that more may be waiting."""

    @property
    def payload_bytes(self) -> int:
        """Payload of all data packets."""
        return sum(arrival.payload_bytes for arrival in self.arrivals)


class ReceiveQueue:
    """Receives from sockets into a region.

    `receive` a batch, give it to the core, `hold` what the core kept; only then `receive` again.
    """

    def __init__(
        self,
        region: Region,
        *,
        chunk_bytes: int,
        datagram_bytes: int,
        reserve_bytes: int = 0,
        number: int = 0,
        header_split: bool = True,
    ) -> None:
        """Take `reserve_bytes`: with less free there is a `shortage`; without `header_split` all payload is copied."""
        self.number = number
        self.region = region
        self.bytes_copied = 0
        self.dropped_for_memory = 0
        self.landed_bytes = 0
        self.pool = Pool(region, chunk_bytes=chunk_bytes, size_bytes=region.size_bytes - spare_bytes(SLOTS))
        self.landing = Landing(region, self.pool, slots=SLOTS)
        self.refill: Callable[[], None] | None = None  # called before memory is needed
        self.shortage = Shortage(self.has)
        self.prediction = Prediction(SLOTS)
        self._reserve_bytes = reserve_bytes
        self._area = number << AREA_SHIFT
        self._split = header_split
        self._region = region
        self._landing = self.landing
        self._headers = np.zeros(SLOTS * MAX_SERIES_PACKETS, HEADER)
        self._extras = np.zeros(SLOTS, HEADER)
        self._iov = np.zeros((SLOTS, MAX_SERIES_PACKETS + 1, 2), IOVEC)
        self._iov[:, :, 0]["length"] = HEADER_BYTES
        self._results = Results(SLOTS)
        rows = np.arange(SLOTS, dtype=np.uint64)
        self._results.messages["iov"] = self._iov.ctypes.data + rows * np.uint64(self._iov[0].nbytes)
        self._open: Arrival | None = None  # what the next slot may continue
        self._next_slot = 0
        self._count = 0  # messages of the last batch
        self._wanted_bytes = 0  # size of the datagrams of series that did not fit
        self._expect(datagram_bytes)

    # -- memory -------------------------------------------------------------------------------------------------

    def _expect(self, datagram_bytes: int) -> None:
        """Lay the iovecs out for datagrams of this size."""
        self.payload_bytes = datagram_bytes - HEADER_BYTES
        self._series = series = min(MAX_DATAGRAM_BYTES // datagram_bytes, MAX_SERIES_PACKETS)
        self._series_bytes = series * datagram_bytes
        self._results.messages["iovlen"] = 2 * (series + 1)
        # Slot after slot, so that the headers of whole series lie back to back, as their payloads may. GRO may put a
        # short datagram behind a whole series: its place is elsewhere.
        at = np.arange(SLOTS * series, dtype=np.uint64).reshape(SLOTS, series)
        self._iov[:, :series, 0]["base"] = self._headers.ctypes.data + at * np.uint64(HEADER_BYTES)
        self._iov[:, series, 0]["base"] = self._extras.ctypes.data + np.arange(SLOTS) * np.uint64(HEADER_BYTES)
        extra = np.uint64(self._region.address + series * self.payload_bytes)
        self._iov[:, series, 1]["base"] = np.array(self._landing.spare, np.uint64) + extra
        self._iov[:, :, 1]["length"] = self.payload_bytes
        header_bytes = self._headers.view(np.uint8).data
        self._rows = [header_bytes[slot * series * HEADER_BYTES :] for slot in range(SLOTS)]
        self._steps = np.arange(series, dtype=np.uint64) * np.uint64(self.payload_bytes)
        self._bases = self._iov["base"][:, :series, 1]
        self._landing.series_bytes = series * self.payload_bytes
        self._aim(range(SLOTS))

    def _aim(self, slots: Sequence[int], *, aimed: Sequence[int] = ()) -> None:
        """Point the payloads of slots at their places, back to back; of the first ones at addresses."""
        if len(slots) > FEW_SLOTS:
            places = np.array(self._landing.cursors, np.uint64) + np.uint64(self._region.address)
            places[: len(aimed)] = aimed
            np.add(self._steps, places[:, np.newaxis], out=self._bases)
            return
        for slot in slots:
            np.add(self._steps, np.uint64(self._region.address + self._landing.cursors[slot]), out=self._bases[slot])

    def _prepare(self) -> None:
        """Make ready for a batch: what was kept of the last one is held by now."""
        if self.refill is not None:
            self.refill()
        self._aim(self._landing.settle())
        if self._wanted_bytes:
            self._expect(self._wanted_bytes)
            self._wanted_bytes = 0
        before = self.prediction.aimed
        aimed = self.prediction.aim(series_bytes=self._landing.series_bytes)
        if aimed or before:
            self._aim(range(SLOTS), aimed=aimed)
        self._results.reset(self._count)

    def place(self, placement: Placement) -> None:
        """Copy what landed to registered memory, an address of this process, if it did not land there."""
        self.prediction.expect(placement.follows)
        if placement.region_offset & PLACED:
            source = placement.region_offset ^ PLACED
            if source == placement.place:
                return
        else:
            source = self._region.address + placement.region_offset - self._area
        ctypes.memmove(placement.place, source, placement.length)
        self.bytes_copied += placement.length

    @property
    def scarce(self) -> bool:
        """Whether less memory than the reserve is free."""
        return self.pool.free_bytes < self._reserve_bytes

    @property
    def refused_packets(self) -> int:
        """Data packets (or series) that found no memory."""
        return self.dropped_for_memory + self.shortage.refused_packets

    def has(self, frag: Frag) -> bool:
        """Whether a piece lies in this queue's region."""
        return frag.region_offset >> AREA_SHIFT == self.number

    def hold(self, kept: Iterable[Frag]) -> None:
        """Keep what the core kept."""
        for frag in kept:
            self.pool.hold(frag.region_offset - self._area, length=frag.length)
            self.landed_bytes += frag.length

    def drop(self, frag: Frag) -> None:
        """Give a piece back."""
        self.pool.drop(frag.region_offset - self._area, length=frag.length)

    def view(self, frag: Frag) -> memoryview:
        """Return the memory of a piece that is held. While it is looked at it is not used again."""
        return self.pool.view(frag.region_offset - self._area, length=frag.length)

    # -- receiving ----------------------------------------------------------------------------------------------

    def receive(self, sock: socket.socket) -> Batch | None:
        """Receive one batch; None when there is none. Raises OSError (an ICMP error among them)."""
        self._prepare()
        self._count = SLOTS  # if it fails, who knows what it has written
        count = self._count = libc.recvmmsg(sock.fileno(), messages=self._results.pointer, count=SLOTS)
        if count == 0:
            return None
        batch = Batch(full=count == SLOTS)
        self._open = None
        clock_offset_s = wall_to_monotonic_s()
        for slot in range(count):
            self._take(batch, slot, clock_offset_s)
        return batch

    def reuse(self, arrivals: Iterable[Arrival], *, kept: Iterable[Frag]) -> None:
        """Use the places of those arrivals again of which nothing is kept, lest what is kept be spread thin."""
        starts = sorted(frag.region_offset - self._area for frag in kept)
        for arrival in arrivals:
            if arrival.payload_offset & PLACED:
                continue
            offset, size_bytes = arrival.payload_offset - self._area, arrival.payload_bytes
            if bisect_left(starts, offset) == bisect_left(starts, offset + size_bytes):
                self._landing.rewind(offset, size_bytes=size_bytes)

    def _take(self, batch: Batch, slot: int, clock_offset_s: float) -> None:
        """Describe what landed in a slot: a datagram, or a series of equal ones (the last may be shorter)."""
        length, size, marked, seconds = self._results.read(slot)
        if length < 0:
            self.dropped_for_memory += 1
            return
        received_at = seconds + clock_offset_s
        address, headers = self._results.address(slot), self._rows[slot]
        expected = HEADER_BYTES + self.payload_bytes
        is_data = length >= HEADER_BYTES and headers[0] == VERSION and headers[1] == _DATA and self._split
        fits = is_data and (size == expected or size == length < expected) and length <= self._series_bytes
        placed = slot < len(self.prediction.aimed) and self._is_placed(slot, length, size, fits=fits)
        if is_data and HEADER_BYTES < size < SMALL_BYTES and size < length <= expected and not length % size:
            self._take_small(batch, slot, length, size, address, received_at, marked=marked)
        elif not fits:
            self._detour(batch, self._gather(slot, length), size, address, received_at, marked=marked)
        elif self._landing.is_spare(slot) and length > HEADER_BYTES and not placed:
            self._drop(batch, headers)
        else:
            count, length = _whole(length, size)
            payload_bytes = length - count * HEADER_BYTES
            if placed:
                offset = PLACED | self.prediction.aimed[slot]
            else:
                offset = self._area + (self._landing.take(slot, payload_bytes) if payload_bytes else 0)
            whole = length == self._series_bytes
            last = self._open
            if (
                last is not None
                and slot == self._next_slot
                and offset == last.payload_offset + last.payload_bytes
                and address == last.address
                and marked == last.marked
                and last.count + count <= MAX_BURST_PACKETS
            ):  # as if both were one series: headers and payloads lie back to back
                last.count += count
                last.payload_bytes += payload_bytes
                last.received_at = received_at
            else:
                last = Arrival(headers, count, offset, payload_bytes, size - HEADER_BYTES, address, received_at, marked)
                batch.arrivals.append(last)
            self._open, self._next_slot = last if whole else None, slot + 1

    def _is_placed(self, slot: int, length: int, size: int, *, fits: bool) -> bool:
        """Whether what landed where a slot was aimed belongs there; if not, bring it home."""
        if fits:
            count, length = _whole(length, size)
            payload_bytes = length - count * HEADER_BYTES
            arrival = Arrival(self._rows[slot], count, 0, payload_bytes, size - HEADER_BYTES, None, 0.0)
            if self.prediction.lies_right(slot, arrival):
                return True
        size_bytes = min(length, self._landing.series_bytes)
        home = self._region.address + self._landing.cursors[slot]
        ctypes.memmove(home, self.prediction.aimed[slot], size_bytes)
        self.bytes_copied += size_bytes
        return False

    def _take_small(
        self, batch: Batch, slot: int, length: int, size: int, address: Address, received_at: float, *, marked: bool
    ) -> None:
        """Describe a series of small datagrams, all of which fit into the place of one: only headers are copied."""
        if self._landing.is_spare(slot):
            self._drop(batch, self._rows[slot])
            return
        count, landed_bytes = length // size, length - HEADER_BYTES
        offset = self._landing.take(slot, landed_bytes)
        others = self._region.array[offset + size - HEADER_BYTES : offset + landed_bytes].reshape(count - 1, size)
        headers = self._rows[slot][:HEADER_BYTES].tobytes() + others[:, :HEADER_BYTES].tobytes()
        payload = size - HEADER_BYTES
        batch.arrivals.append(
            Arrival(
                memoryview(headers),
                count,
                self._area + offset,
                count * payload,
                payload,
                address,
                received_at,
                marked,
                HEADER_BYTES,
            )
        )

    def _drop(self, batch: Batch, headers: memoryview) -> None:
        self.dropped_for_memory += 1
        batch.unready.add(int.from_bytes(headers[8:16], "big"))

    # -- the slower path ----------------------------------------------------------------------------------------

    def _gather(self, slot: int, length: int) -> bytes:
        """Put a message together again from where it was scattered."""
        pairs = -(-length // (HEADER_BYTES + self.payload_bytes))
        if pairs == 1:  # as nearly always: a control packet
            place, rest = self._landing.cursors[slot], length - HEADER_BYTES
            head = self._rows[slot][: min(length, HEADER_BYTES)].tobytes()
            return head + self._region.array[place : place + rest].tobytes() if rest > 0 else head
        headers = self._rows[slot][: min(pairs, self._series) * HEADER_BYTES].tobytes()
        headers += self._extras[slot].tobytes()
        region, size = self._region.array, self.payload_bytes
        places = range(self._landing.cursors[slot], self._landing.cursors[slot] + self._series * size, size)
        pieces = []
        for pair, place in enumerate([*places, self._landing.spare[slot] + self._series * size][:pairs]):
            pieces += [headers[pair * HEADER_BYTES : (pair + 1) * HEADER_BYTES], region[place : place + size].tobytes()]
        return b"".join(pieces)[:length]

    def _detour(
        self, batch: Batch, whole: bytes, size: int, address: Address, received_at: float, *, marked: bool
    ) -> None:
        """Cut a message where its datagrams end; copy the payloads of those that are data."""
        for start in range(0, len(whole), max(size, 1)):
            piece = whole[start : start + size]
            if len(piece) >= HEADER_BYTES and piece[:2] == _DATA_PREFIX:
                self._copy(batch, piece, address, received_at, marked=marked)
                if self._split and len(whole) > size >= MIN_EXPECTED_BYTES:
                    self._wanted_bytes = size
            else:
                batch.controls.append((piece, address, received_at))

    def _copy(self, batch: Batch, piece: bytes, address: Address, received_at: float, *, marked: bool) -> None:
        payload = piece[HEADER_BYTES:]
        offset = self._landing.copy(payload) if payload else 0
        if offset is None:
            self._drop(batch, memoryview(piece))
            return
        self.bytes_copied += len(payload)
        batch.arrivals.append(
            Arrival(
                headers=memoryview(piece),
                count=1,
                payload_offset=self._area + offset,
                payload_bytes=len(payload),
                segment_bytes=len(payload),
                address=address,
                received_at=received_at,
                marked=marked,
            )
        )


def _whole(length: int, size: int) -> tuple[int, int]:
    """Return how many datagrams of `size` a series of `length` bytes has, and their length; a stump is none."""
    count = -(-length // size)
    if length - (count - 1) * size < HEADER_BYTES:  # the last of the series is shorter than a header
        return count - 1, (count - 1) * size
    return count, length
