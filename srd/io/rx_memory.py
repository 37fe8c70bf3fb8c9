"""A receive queue's memory: what is kept of it, what is copied to its target, and what is reused.

`rx` and `secure_rx` receive into it. An endpoint may have several receive queues, each with its own sockets and region.
Outside of the queue, an offset in its region carries the queue's number in the upper 16 bits (like the area of io_uring
zcrx); inside, offsets are plain.
"""

from __future__ import annotations

import ctypes
import socket
from bisect import bisect_left
from collections.abc import Callable, Iterable
from typing import Final

from devmem.pool import Pool
from devmem.region import Region
from srd.io.rx_buffers import RxBuffers, scratch_bytes
from srd.io.syscalls import Address
from srd.proto.events import REGION_SHIFT, Extent, ReceiveResult, TargetCopy
from srd.proto.wire.data import GroDatagram

SLOTS: Final = 16
"""Messages per system call: 1 MiB with GRO; without GRO enough to amortise the call."""


class RxBatch:
    """What one system call received.

    `controls`: control packets as (bytes, source address, time of receipt). `no_memory`: contexts of data that was
    dropped because no memory was free. `full`: whether every slot was filled, so that more datagrams may be waiting.
    `low_region`: the region that the data landed in, if it is short of memory.
    """

    def __init__(self, *, full: bool = False) -> None:  # no dataclass, whose constructor is not compiled
        self.datagrams: list[GroDatagram] = []
        self.controls: list[tuple[bytes, Address, float]] = []
        self.no_memory: set[int] = set()
        self.full = full
        self.low_region: int | None = None

    @property
    def payload_bytes(self) -> int:
        """Payload of all data packets."""
        return sum(datagram.payload_bytes for datagram in self.datagrams)


class RxMemory:
    """A region, and what was received into it.

    `receive` a batch, pass it to the core, `commit` the core's result; only then `receive` again.
    """

    def __init__(self, region: Region, *, chunk_bytes: int, reserve_bytes: int, number: int, slots: int) -> None:
        """Manage `region`. While less than `reserve_bytes` of it is free, admission control applies.

        That is `endpoint.admission`. `slots`: how many messages of a system call land in it directly.
        """
        self.number = number
        self.region = region
        self.bytes_copied = 0
        self.refused_packets = 0  # data packets (or trains) for which no memory was free, or that were not admitted
        self.landed_bytes = 0
        self.pool = Pool(region, chunk_bytes=chunk_bytes, size_bytes=region.size_bytes - scratch_bytes(SLOTS))
        self.buffers = RxBuffers(region, self.pool, slots=slots)
        self.on_low: Callable[[], None] | None = None  # called after a batch that found the region short of memory
        self.batch_messages = SLOTS  # that one batch receives at most
        self._reserve_bytes = reserve_bytes
        self._area = number << REGION_SHIFT
        self._region = region
        self._open: GroDatagram | None = None  # the datagram that the next slot may continue
        self._count = 0  # messages of the last batch
        self._copied: list[
            tuple[int, int, int]
        ] = []  # of this batch: start and end of each copied train, and its datagram size
        self._copied_bytes: dict[int, int] = {}  # kept bytes of such trains since the last decision, by datagram size
        self._decided_bytes = 0  # kept bytes in all up to the last decision
        self._placed_bytes = 0

    def receive(self, sock: socket.socket) -> RxBatch | None:
        """Receive one batch; return None when nothing is waiting. Raises OSError (among others for ICMP errors)."""
        raise NotImplementedError

    @property
    def _kept_bytes(self) -> int:
        """Payload that the core kept or had copied to a landing target."""
        return self.landed_bytes + self._placed_bytes

    def _note_copied(self, offset: int, size_bytes: int) -> None:
        """Count what was kept of a train that had to be copied because its segment size did not match the layout."""
        for start, end, size in self._copied:
            if start <= offset < end:
                if not self._copied_bytes:
                    self._decided_bytes = self._kept_bytes
                self._copied_bytes[size] = self._copied_bytes.get(size, 0) + size_bytes

    def _copy_to_target(self, placement: TargetCopy) -> None:
        """Copy a payload to its target, an address in registered memory."""
        source = self._region.address + placement.region_offset - self._area
        ctypes.memmove(placement.target, source, placement.length)
        self.bytes_copied += placement.length
        if self._copied:
            self._note_copied(placement.region_offset, placement.length)
        self._placed_bytes += placement.length

    @property
    def memory_low(self) -> bool:
        """Whether less memory than the reserve is free."""
        return self.pool.free_bytes < self._reserve_bytes

    def commit(self, batch: RxBatch, result: ReceiveResult) -> None:
        """Carry out what the core has decided about a batch: hold what it kept, copy, and reuse the rest."""
        self.hold(result.kept)
        self.refused_packets += result.refused_packets
        if batch.low_region is not None:
            self._reuse(batch.datagrams, kept=result.kept)
        for placement in result.copies:
            self._copy_to_target(placement)
        if batch.low_region is not None and self.on_low is not None:
            self.on_low()

    def hold(self, extents: Iterable[Extent]) -> None:
        """Hold the memory of extents until `drop`."""
        for extent in extents:
            self.pool.hold(extent.region_offset - self._area, length=extent.length)
            if self._copied:
                self._note_copied(extent.region_offset, extent.length)
            self.landed_bytes += extent.length

    def drop(self, extent: Extent) -> None:
        """Release the memory of an extent."""
        self.pool.drop(extent.region_offset - self._area, length=extent.length)

    def has(self, extent: Extent) -> bool:
        """Whether an extent lies in this region."""
        return extent.region_offset >> REGION_SHIFT == self.number

    def chunks(self, extent: Extent) -> range:
        """Return the chunks of the pool that an extent lies in."""
        return self.pool.touched(extent.region_offset - self._area, extent.length)

    def move(self, extent: Extent) -> Extent:
        """Copy an extent that is held to behind what was copied last; return it there, or as it is if memory lacks."""
        length = extent.length
        offset = self.buffers.allocate_copy(length) if 0 < length <= self.pool.chunk_bytes else None
        if offset is None:
            return extent
        ctypes.memmove(self.region.address + offset, self.region.address + extent.region_offset - self._area, length)
        self.bytes_copied += length
        self.pool.hold(offset, length=length)
        self.drop(extent)
        return Extent(extent.offset, self._area + offset, length)

    def view(self, extent: Extent) -> memoryview:
        """Return a view of an extent that is held. Its memory is not reused while the view exists."""
        return self.pool.view(extent.region_offset - self._area, length=extent.length)

    def _reuse(self, datagrams: Iterable[GroDatagram], *, kept: Iterable[Extent]) -> None:
        """Reuse the memory of datagrams of which nothing was kept, so that kept data does not fragment the pool."""
        starts = sorted(extent.region_offset - self._area for extent in kept)
        for datagram in datagrams:
            offset, size_bytes = datagram.payload_offset - self._area, datagram.payload_bytes
            if bisect_left(starts, offset) == bisect_left(starts, offset + size_bytes):
                self.buffers.rewind(offset, size_bytes=size_bytes)
