"""Chunks that have arrived, on their way to the worker thread: in batches, so that hand-offs do not limit the rate.

What arrives while the thread is busy makes the next batch. Two batches are handed over at a time, so that the thread
never waits for the event loop; so batches are short when the thread keeps up, and long when it does not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

from srd.file_transfer.partial_file import PartialFile
from srd.file_transfer.protocol import TransferError
from srd.file_transfer.transport import Message

BATCHES = 2
"""Handed to the thread: one that it stores, and the next."""
MAX_BATCH = 16
"""Chunks in a batch: their memory is given back when all of them are stored."""


class StoreQueue:
    """Stores messages with chunks, and releases them. `start(call)` runs a blocking call in the transfer's thread."""

    def __init__(self, store: PartialFile, *, start: Callable[[Callable[[], None]], asyncio.Future[None]]) -> None:
        self._store = store
        self._start = start
        self._waiting: list[Message] = []
        self._running: set[asyncio.Future[None]] = set()
        self._error: BaseException | None = None

    @property
    def is_idle(self) -> bool:
        """Whether nothing is being stored."""
        return not self._running

    def add(self, message: Message) -> None:
        """Store a chunk. Raises the error of an earlier one, if there was any."""
        self._waiting.append(message)
        self.check()
        self._hand_over()

    def check(self) -> None:
        """Raise the first error, if there was any."""
        if self._error is not None:
            raise self._error

    def announce(self, first: int, digests: Sequence[bytes]) -> None:
        """Take the sender's digests. Raises the error of an earlier chunk, if there was any."""
        self.check()
        self._run([], partial(self._store.announce, first, digests))

    async def drain(self) -> None:
        """Wait until all is stored. Raises the first error, if there was any."""
        while self._running:
            await asyncio.wait(self._running.copy())
        self.check()

    async def close(self) -> None:
        """Release what waits, and wait for the thread, which uses the rest."""
        waiting, self._waiting = self._waiting, []
        for message in waiting:
            message.release()
        if self._running:
            await asyncio.wait(self._running.copy())

    def _hand_over(self) -> None:
        while self._waiting and len(self._running) < BATCHES and self._error is None:
            batch, self._waiting = self._waiting[:MAX_BATCH], self._waiting[MAX_BATCH:]
            chunks = [(message.immediate, list(message.views())) for message in batch]
            self._run(batch, partial(self._put, chunks))

    def _put(self, chunks: list[tuple[int | None, list[memoryview]]]) -> None:
        """In the thread."""
        try:
            for index, views in chunks:
                if index is None:
                    raise TransferError("a message that is neither a chunk nor a control message")
                self._store.put(index, views)
        finally:
            for _, views in chunks:
                views.clear()  # or its memory would stay in use

    def _run(self, batch: list[Message], call: Callable[[], None]) -> None:
        running = self._start(call)
        self._running.add(running)

        def ended(_: asyncio.Future[None]) -> None:
            self._running.discard(running)
            if not running.cancelled() and (error := running.exception()) is not None:
                self._error = self._error or error
            for message in batch:
                message.release()
            self._hand_over()

        running.add_done_callback(ended)
