"""The completion queue, for requests that are posted in batches.

In terms of InfiniBand verbs, `Peer.post_sends` is `ibv_post_send` with a list of work requests, `poll` is
`ibv_poll_cq`, and an entry is an `ibv_wc`, except that neighbouring requests with the same status share an entry. An
endpoint has one queue for all its peers. What is posted singly (`Peer.post_send`, `post_write`, `post_read`) is a
future instead, and has no entry.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass

from srd.errors import SrdError
from srd.peer import Peer
from srd.proto.wire.status import Status


@dataclass(frozen=True, slots=True)
class WorkCompletion:
    """Consecutive requests of one peer that completed with the same status."""

    peer: Peer
    first: int
    """Id of the first request."""
    count: int
    """Number of requests; their ids are consecutive."""
    status: Status


class CompletionQueue:
    """Completions to `poll`, or to `wait` for.

    The queue is unbounded: it grows until its entries are polled. Packets move while the event loop runs, so a program
    that only polls must let the loop run between two polls (`await asyncio.sleep(0)`).
    """

    def __init__(self) -> None:
        self._entries: deque[WorkCompletion] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._closed = False

    def poll(self, most: int = 256) -> list[WorkCompletion]:
        """Remove and return up to `most` entries, in the order of completion; an empty list if there are none."""
        entries = self._entries
        return [entries.popleft() for _ in range(min(most, len(entries)))]

    async def wait(self, most: int = 256) -> list[WorkCompletion]:
        """Wait until there is an entry, then `poll`. For one task at a time.

        Raises SrdError when the endpoint is closed and the queue empty.
        """
        while not self._entries:
            if self._closed:
                raise SrdError("the endpoint is closed, and every completion was taken")
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        return self.poll(most)

    def push(self, entry: WorkCompletion) -> None:
        """Add an entry. For the endpoint."""
        self._entries.append(entry)
        self._wake()

    def close(self) -> None:
        """Wake the waiting task; from then on `wait` raises when the queue is empty. For the endpoint."""
        self._closed = True
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
