"""Chunks that have arrived, on their way to the worker thread: in batches, so that hand-offs do not limit the rate.

What arrives while the thread is busy makes the next batch. Two batches are handed over at a time, so that the thread
never waits for the event loop; so batches are short when the thread keeps up, and long when it does not.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial

from srd.file_transfer.errors import TransferError
from srd.file_transfer.incoming import Announcement, Arrival, Hole, Incoming, put_all

BATCHES = 2
"""Handed to the thread: one that it stores, and the next."""
MAX_BATCH = 16
"""Chunks in a batch: their memory is given back when all of them are stored."""
MAX_WAITING = 4096
"""Chunks and digests that wait. Chunks are bounded by the peer's credit, digests are not."""
Item = Arrival | Announcement | Hole
Failures = dict[Incoming, TransferError]


class StoreQueue:
    """Stores chunks, and releases their messages. `start(call)` runs a blocking call in the session's thread.

    `on_stored(batch, failures)` is called for each batch, with the files that failed; `on_error()` once there is what
    `check` raises.
    """

    def __init__(
        self,
        *,
        start: Callable[[Callable[[], Failures]], asyncio.Future[Failures]],
        on_stored: Callable[[list[Item], Failures], None],
        on_error: Callable[[], None],
    ) -> None:
        self._start = start
        self._on_stored = on_stored
        self._on_error = on_error
        self._waiting: deque[Item] = deque()
        self._running: set[asyncio.Future[Failures]] = set()
        self._error: BaseException | None = None

    @property
    def is_idle(self) -> bool:
        """Whether nothing is being stored."""
        return not self._running

    def check(self) -> None:
        """Raise what no file is to blame for."""
        if self._error is not None:
            raise self._error

    def add(self, item: Item) -> None:
        """Store a chunk, or digests. Raises what `check` raises."""
        self._waiting.append(item)
        self.check()
        if len(self._waiting) > MAX_WAITING:
            raise TransferError("the sender sends more digests than chunks")
        self._hand_over()

    async def close(self) -> None:
        """Store what waits, too, as it has been acknowledged, and may be resumed; wait for the thread."""
        while self._waiting or self._running:
            if self._error is not None:
                waiting, self._waiting = self._waiting, deque()
                _release(waiting)
            self._hand_over()
            if self._running:
                await asyncio.wait(self._running.copy())

    def _hand_over(self) -> None:
        while self._waiting and len(self._running) < BATCHES:
            batch = [self._waiting.popleft() for _ in range(min(MAX_BATCH, len(self._waiting)))]
            running = self._start(partial(put_all, batch))
            self._running.add(running)
            running.add_done_callback(partial(self._on_ended, batch))

    def _on_ended(self, batch: list[Item], running: asyncio.Future[Failures]) -> None:
        self._running.discard(running)
        _release(batch)
        if not running.cancelled() and (error := running.exception()) is not None:
            self._error = self._error or error
            self._on_error()
        else:
            self._on_stored(batch, {} if running.cancelled() else running.result())
        self._hand_over()


def _release(items: list[Item] | deque[Item]) -> None:
    for item in items:
        if isinstance(item, Arrival):
            item.message.release()
