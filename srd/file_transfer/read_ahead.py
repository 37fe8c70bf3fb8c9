"""Reading ahead: the worker thread reads a file's chunks into slots of memory, while others are sent from theirs.

A call of the thread reads and hashes several chunks, and the next call is handed over before it ends, so that neither
hand-offs nor the event loop limit the rate. A slot is free again when its chunk has been sent. The slot that was used
last is used first, as it may still be in the CPU cache.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from devmem.region import Region
from srd.file_transfer.pipe_source import PipeSource
from srd.file_transfer.protocol import CHUNK_BYTES
from srd.file_transfer.source_file import SourceFile
from srd.notify import Notify

SLOTS = 32
"""Chunks in memory, read ahead and in flight: as many as a receive window holds by default, for long links."""
BATCH = 4
"""Chunks that one call of the thread reads. Of a pipe one, as the next may come much later."""
BATCHES = 2
"""Handed to the thread: one that it reads, and the next."""
SCRATCH_BYTES = 256 << 10
"""Read at once from a mapped file, for hashing only: small enough for a core's own cache."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """A chunk that was read."""

    index: int
    slot: int
    length: int
    digest: bytes


ChunkSource = SourceFile | PipeSource


class ReadAhead:
    """The slots, for one file after the other: `begin`, then `next` until it returns nothing, then `close`.

    With `is_scratch` chunks are only hashed. `changed` is notified when a slot is free; the owner may do so for other
    reasons to wait for. `check` is called while waiting, and may raise.
    """

    def __init__(self, worker: ThreadPoolExecutor, *, is_scratch: bool, changed: Notify) -> None:
        self._worker = worker
        self._changed = changed
        self._step_bytes = SCRATCH_BYTES if is_scratch else CHUNK_BYTES
        self.region = Region(SLOTS * CHUNK_BYTES, name="srd-send")
        self._free = list(range(SLOTS))
        self._reading: deque[tuple[list[int], asyncio.Future[list[Chunk]]]] = (
            deque()
        )  # slots, and what is read into them
        self._source: ChunkSource | None = None
        self._next_index = 0
        self._end: int | None = None

    def begin(self, source: ChunkSource, *, first: int, end: int | None = None) -> None:
        """Read `source` from chunk `first` to before `end`, or to its end."""
        self._end = end
        source.begin()
        self._source, self._next_index = source, first

    async def next(self, check: Callable[[], None]) -> list[Chunk]:
        """Return the next chunks; none when all were returned. Raises TransferError, and what `check` raises."""
        while True:
            check()
            self._hand_over()
            if self._reading and self._reading[0][1].done():
                chunks = self._reading[0][1].result()
                slots, _ = self._reading.popleft()
                self._free.extend(set(slots) - {chunk.slot for chunk in chunks})
                self._hand_over()
                if chunks:
                    return chunks
                continue  # behind the end of a pipe
            if not self._reading and self._is_at_end:
                return []
            await self._changed.wait()

    @property
    def _is_at_end(self) -> bool:
        end = self._end_index
        return self._source is None or (end is not None and self._next_index >= end)

    @property
    def _end_index(self) -> int | None:
        """Where reading ends; None: a pipe whose end was not read."""
        return self._end if self._end is not None or self._source is None else self._source.chunks

    def _hand_over(self) -> None:
        while self._source is not None and not self._is_at_end and len(self._reading) < BATCHES:
            end = self._end_index
            count = 1 if end is None else min(BATCH, end - self._next_index)
            if len(self._free) < count:
                return
            slots = [self._free.pop() for _ in range(count)]
            indices = range(self._next_index, self._next_index + count)
            self._next_index += count
            reading = asyncio.get_running_loop().run_in_executor(self._worker, self._read, self._source, indices, slots)
            self._reading.append((slots, reading))
            reading.add_done_callback(lambda _: self._changed.notify())

    def _read(self, source: ChunkSource, indices: Sequence[int], slots: Sequence[int]) -> list[Chunk]:
        """In the thread."""
        chunks = []
        for index, slot in zip(indices, slots, strict=True):
            with self.region.view(slot * CHUNK_BYTES, length=self._step_bytes) as view:
                found = source.read(index, into=view)
            if found is not None:
                chunks.append(Chunk(index, slot, *found))
        return chunks

    def give_back(self, slot: int) -> None:
        """Have a slot read into again."""
        self._free.append(slot)
        self._changed.notify()

    async def stop(self) -> None:
        """Read no more of the file, and wait for the thread, which uses the memory and the file."""
        if self._source is not None:
            self._source.stop()
        self._source = None
        stopping, self._reading = self._reading, deque()
        pending = [reading for _, reading in stopping]
        try:
            if pending:
                await asyncio.wait(pending)
        except asyncio.CancelledError:
            await asyncio.wait(pending)
            raise
        finally:
            for slots, reading in stopping:
                reading.exception()  # of a file that is not sent any more
                self._free.extend(slots)

    def close(self) -> None:
        """Release the memory, which nothing may use any more."""
        self.region.close()
