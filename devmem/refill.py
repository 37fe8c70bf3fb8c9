"""A refill ring: fragments are returned by writing an entry into shared memory, without a call, as in io_uring zcrx.

    0        64       128
    | head    | tail   | entry 0 | entry 1 | ...         head, tail: u32, counting up, little-endian; entries: zcrx_rqe

One side writes entries and then the tail (`push`), the other reads entries and then writes the head
(`take_untrusted`). Each counter has one writer and a cache line of its own. A write of 32 bits is atomic, and x86-64
and Python's memory accesses keep the order of stores. So the two sides may be two threads, or two processes that map
the same region. The contents of a ring are untrusted: an entry that names no fragment is skipped, and counters that are
out of range are an error.
"""

from __future__ import annotations

import struct

from devmem.errors import PoolError
from devmem.region import Region
from devmem.tokens import Frag
from devmem.uapi import AREA_SHIFT, ZCRX_RQE

HEADER_BYTES = 128
_TAIL_AT = 64
_ENTRY = struct.Struct("<QII")


class RefillRing:
    """Entries in `region` behind the two counters. `push` on one side, `take_untrusted` on the other."""

    def __init__(self, region: Region) -> None:
        """Use a region, new or shared by another process. Raises PoolError if it has no room for two entries."""
        self.region = region
        entries = (region.size_bytes - HEADER_BYTES) // ZCRX_RQE.itemsize
        if entries < 2:
            raise PoolError(f"a region of {region.size_bytes} bytes has no room for a refill ring; give a page")
        self.entries = 1 << (entries.bit_length() - 1)
        self._memory: memoryview = region.view(0, length=HEADER_BYTES + self.entries * ZCRX_RQE.itemsize)
        self._counters = self._memory[:HEADER_BYTES].cast("I")

    def push(self, frag: Frag) -> bool:
        """Return a fragment. If the ring is full, return False; then try again later, or use the token."""
        tail = self._counters[_TAIL_AT // 4]
        if (tail - self._counters[0]) & 0xFFFFFFFF >= self.entries:
            return False
        at = HEADER_BYTES + (tail & (self.entries - 1)) * ZCRX_RQE.itemsize
        _ENTRY.pack_into(self._memory, at, frag.region_id << AREA_SHIFT | frag.offset, frag.length, 0)
        self._counters[_TAIL_AT // 4] = (tail + 1) & 0xFFFFFFFF
        return True

    def take_untrusted(self) -> list[tuple[int, int]]:
        """Return the new entries as (area and offset, length). Raises PoolError for counters out of range."""
        head, tail = self._counters[0], self._counters[_TAIL_AT // 4]
        count = (tail - head) & 0xFFFFFFFF
        if count > self.entries:
            raise PoolError(
                f"refill ring: {count} entries waiting in a ring of {self.entries}; its other side is broken"
            )
        found = []
        for index in range(head, head + count):
            at = HEADER_BYTES + (index & (self.entries - 1)) * ZCRX_RQE.itemsize
            off, length, _ = _ENTRY.unpack_from(self._memory, at)
            found.append((off, length))
        self._counters[0] = tail
        return found

    def close(self) -> None:
        """Release the region."""
        self._counters.release()
        self._memory.release()
