"""The memory that a tunnel's messages are sent from: packets are read from the interface to where they are sent.

The memory is cut into chunks, and each is filled from its beginning. A chunk is used again when all that lies in it has
been sent. The last chunk that became free is filled next, as it is still in the processor's cache; for the same reason
the chunk that is being filled starts again as soon as nothing in it is needed.
"""

from __future__ import annotations

from typing import Final

from devmem.region import Region

CHUNK_BYTES: Final = 1 << 20
CHUNKS: Final = 64
"""64 MiB at most: two of the default receive windows of the other end. Chunks that are never filled take no memory."""


class MemoryPiece:
    """A piece of the memory that is in use."""

    __slots__ = ("address", "chunk", "view")

    def __init__(self, chunk: int, *, address: int, view: memoryview) -> None:
        self.chunk = chunk
        self.address = address
        """In this process."""
        self.view = view


class PacketMemory:
    """Chunks of memory; see the module."""

    def __init__(self, *, chunk_bytes: int = CHUNK_BYTES, chunks: int = CHUNKS) -> None:
        self._region = Region(chunk_bytes * chunks, name="srd-tunnel")
        self._whole = memoryview(self._region)
        self._chunk_bytes = chunk_bytes
        self._used = [0] * chunks  # pieces in use of each chunk
        self._free = list(range(chunks - 1, 0, -1))
        self._current = 0
        self._at = 0  # where the free part of the current chunk begins

    def room(self, size_bytes: int) -> memoryview | None:
        """Return free memory of so many bytes, for `take`; None: all is in use. It is at most a chunk's."""
        if self._at + size_bytes > self._chunk_bytes:
            if not self._free:
                return None
            self._current, self._at = self._free.pop(), 0
        start = self._current * self._chunk_bytes + self._at
        return self._whole[start : start + size_bytes]

    def take(self, size_bytes: int) -> MemoryPiece:
        """Take the first bytes of what `room` has returned just now; often they follow what was taken before."""
        start = self._current * self._chunk_bytes + self._at
        self._at += size_bytes
        self._used[self._current] += 1
        return MemoryPiece(
            self._current, address=self._region.address + start, view=self._whole[start : start + size_bytes]
        )

    def give_back(self, place: MemoryPiece) -> None:
        """Free a piece."""
        chunk = place.chunk
        self._used[chunk] -= 1
        if self._used[chunk] == 0:
            if chunk == self._current:
                self._at = 0
            else:
                self._free.append(chunk)

    @property
    def used_fraction(self) -> float:
        """The fraction of the chunks that hold something."""
        return sum(map(bool, self._used)) / len(self._used)

    def close(self) -> None:
        """Release the memory; nothing may be in flight any more."""
        self._whole.release()
        self._region.close()
