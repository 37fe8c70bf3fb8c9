"""The receive pool: a region cut into chunks, which fill up with payload and are reused once every piece is returned.

Rules, as in the kernel's page pool:
1. A chunk is free, open (a receive queue is filling it), or pinned by the pieces in it that somebody holds.
2. `hold` counts a piece, `drop` gives it back; a chunk is reused when it is no longer open and nothing in it is held.
3. An empty pool is the caller's to turn into backpressure; it is never an overwrite.
"""

from __future__ import annotations

from devmem.errors import PoolError


class Pool:
    """Chunks of `chunk_bytes` over `size_bytes` of a region, from its beginning."""

    def __init__(self, size_bytes: int, *, chunk_bytes: int) -> None:
        if not 0 < chunk_bytes <= size_bytes:
            raise PoolError(f"chunk_bytes: {chunk_bytes} is not between 1 and the pool's size ({size_bytes})")
        self.chunk_bytes = chunk_bytes
        self.chunks = size_bytes // chunk_bytes
        self._free = [*reversed(range(self.chunks))]  # what was used last comes first: it may be in a cache yet
        self._holds = [0] * self.chunks  # pieces held in each chunk
        self._opened: set[int] = set()  # chunks that are being filled

    @property
    def free_chunks(self) -> int:
        """Chunks that `open` can hand out."""
        return len(self._free)

    @property
    def free_bytes(self) -> int:
        """What the free chunks hold."""
        return len(self._free) * self.chunk_bytes

    def open(self) -> int | None:
        """Take a free chunk to fill; return its offset in the region, or None when there is none."""
        if not self._free:
            return None
        chunk = self._free.pop()
        self._opened.add(chunk)
        return chunk * self.chunk_bytes

    def close(self, offset: int) -> None:
        """Stop filling the chunk at `offset`; what is held in it stays. Raises PoolError if nobody fills it."""
        chunk = offset // self.chunk_bytes
        if chunk not in self._opened:
            raise PoolError(f"the chunk at {offset} is not open")
        self._opened.remove(chunk)
        if self._holds[chunk] == 0:
            self._free.append(chunk)

    def hold(self, offset: int, *, length: int) -> None:
        """Keep a piece: its chunk (or chunks) will not be reused before `drop` of the same piece."""
        chunk, skipped = divmod(offset, self.chunk_bytes)
        if 0 <= chunk < self.chunks and 0 < length <= self.chunk_bytes - skipped:  # as nearly always
            self._holds[chunk] += 1
            return
        for chunk in self._touched(offset, length):
            self._holds[chunk] += 1

    def drop(self, offset: int, *, length: int) -> None:
        """Return a piece. Raises PoolError for one that nobody holds."""
        for chunk in self._touched(offset, length):
            self._drop(chunk)

    def _touched(self, offset: int, length: int) -> range:
        first = offset // self.chunk_bytes
        last = max(offset + length - 1, offset) // self.chunk_bytes
        if offset < 0 or last >= self.chunks:
            raise PoolError(f"bytes {offset} to {offset + length} are not within the pool")
        return range(first, last + 1)

    def _drop(self, chunk: int) -> None:
        if self._holds[chunk] == 0:
            raise PoolError(f"chunk {chunk} has nothing held: a piece was returned twice")
        self._holds[chunk] -= 1
        if self._holds[chunk] == 0 and chunk not in self._opened:
            self._free.append(chunk)
