"""The receive pool: a region divided into chunks, which fill up with payload and are reused once all of it is returned.

Rules, as in the kernel's page pool:
1. A chunk is free, open (a receive queue is filling it), or pinned by held fragments in it.
2. `hold` increments the reference count of a fragment's chunk, `drop` decrements it. A chunk is reused when it is not
   open and its count is 0.
3. A view holds its memory while any object made from it exists, so that memory in use is not overwritten even if its
   fragment was returned. A view may end in any thread; that is processed when free memory is next requested.
4. When the pool is empty, the caller has to apply backpressure; memory in use is never overwritten.

Except for the end of a view, everything happens in one thread.
"""

from __future__ import annotations

import weakref
from collections import deque
from functools import partial

import numpy as np
import numpy.typing as npt

from devmem.errors import PoolError
from devmem.region import Region


class Pool:
    """Chunks of `chunk_bytes` over the first `size_bytes` of a region, all of it by default. Keeps the region open."""

    def __init__(self, region: Region, *, chunk_bytes: int, size_bytes: int | None = None) -> None:
        size_bytes = region.size_bytes if size_bytes is None else size_bytes
        if not region.writable:
            raise PoolError("the region is mapped read-only, nothing can land in it; map it writable")
        if not 0 < chunk_bytes <= size_bytes:
            raise PoolError(f"chunk_bytes: {chunk_bytes} is not between 1 and the pool's size ({size_bytes})")
        self.chunk_bytes = chunk_bytes
        self.chunks = size_bytes // chunk_bytes
        self._region = region
        self._pin: memoryview | None = region.view(0, length=size_bytes)  # keeps the region open
        self._free = [*reversed(range(self.chunks))]  # a stack: the chunk used last may still be in the CPU cache
        self._holds = [0] * self.chunks  # reference count of each chunk
        self._opened: set[int] = set()  # chunks that are being filled
        self._watched: dict[int, weakref.ref[npt.NDArray[np.uint8]]] = {}  # live views
        self._ended_views: deque[tuple[int, int]] = deque()  # holds of views that have ended, not dropped yet

    @property
    def free_chunks(self) -> int:
        """Number of chunks that `open` can return."""
        if self._ended_views:
            self._collect()
        return len(self._free)

    @property
    def free_bytes(self) -> int:
        """Size of the free chunks."""
        return self.free_chunks * self.chunk_bytes

    @property
    def idle(self) -> bool:
        """Whether no chunk is open or held."""
        return self.free_chunks == self.chunks

    def open(self) -> int | None:
        """Take a free chunk to fill; return its offset in the region, or None when there is none."""
        if not self.free_chunks:
            return None
        chunk = self._free.pop()
        self._opened.add(chunk)
        return chunk * self.chunk_bytes

    def close(self, offset: int) -> None:
        """Stop filling the chunk at `offset`; held fragments in it stay. Raises PoolError if it is not open."""
        chunk = offset // self.chunk_bytes
        if chunk not in self._opened:
            raise PoolError(f"the chunk at {offset} is not open")
        self._opened.remove(chunk)
        if self._holds[chunk] == 0:
            self._free.append(chunk)

    def hold(self, offset: int, *, length: int) -> None:
        """Hold a fragment: its chunk (or chunks) will not be reused before `drop` of the same fragment."""
        chunk, skipped = divmod(offset, self.chunk_bytes)
        if 0 <= chunk < self.chunks and 0 < length <= self.chunk_bytes - skipped:  # the common case
            self._holds[chunk] += 1
            return
        for chunk in self.touched(offset, length):
            self._holds[chunk] += 1

    def drop(self, offset: int, *, length: int) -> None:
        """Release a fragment. Raises PoolError if it is not held."""
        for chunk in self.touched(offset, length):
            self._drop(chunk)

    def view(self, offset: int, *, length: int) -> memoryview:
        """Return a view of a held fragment, without a copy. Raises PoolError if it is not held."""
        if self._pin is None or not all(self._holds[chunk] for chunk in self.touched(offset, length)):
            raise PoolError(f"bytes {offset} to {offset + length} are not held: they were returned")
        # Every object made from the view keeps this array alive. An array can have a weak reference, a memoryview not.
        piece = np.frombuffer(self._region, np.uint8, count=length, offset=offset)
        self.hold(offset, length=length)
        watched = weakref.ref(piece, partial(self._view_ended, (offset, length)))
        self._watched[id(watched)] = watched
        return piece.data

    def release(self) -> None:
        """Release the region, when no more memory will be requested. Live views still keep it open."""
        if self._pin is not None:
            self._pin.release()
            self._pin = None

    def _view_ended(self, piece: tuple[int, int], reference: weakref.ref[npt.NDArray[np.uint8]]) -> None:
        """Queue the release of a view that has ended, in any thread."""
        self._watched.pop(id(reference), None)
        self._ended_views.append(piece)

    def _collect(self) -> None:
        while self._ended_views:
            offset, length = self._ended_views.popleft()
            self.drop(offset, length=length)

    def is_held_by(self, chunk: int, *, fragments: int) -> bool:
        """Whether nothing but so many fragments keeps a chunk from being reused."""
        if self._ended_views:
            self._collect()
        return self._holds[chunk] == fragments and chunk not in self._opened

    def touched(self, offset: int, length: int) -> range:
        """Return the chunks that a fragment lies in. Raises PoolError for what is not within the pool."""
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
