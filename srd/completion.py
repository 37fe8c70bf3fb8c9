"""The completion queue, for requests that are posted in batches.

In terms of InfiniBand verbs, `Peer.post_sends` is `ibv_post_send` with a list of work requests, `poll` is
`ibv_poll_cq`, and an entry is an `ibv_wc`, except that neighbouring requests with the same status share an entry. An
endpoint has one queue for all its peers. What is posted singly (`Peer.post_send`, `post_write`, `post_read`) is a
future instead, and has no entry.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from srd.errors import SrdError
from srd.notify import Notify
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
        self._changed = Notify()
        self._closed = False

    def poll(self, most: int = 256) -> list[WorkCompletion]:
        """Remove and return up to `most` entries, in the order of completion; an empty list if there are none."""
        entries = self._entries
        return [entries.popleft() for _ in range(min(most, len(entries)))]

    async def wait(self, most: int = 256) -> list[WorkCompletion]:
        """Wait until there is an entry, then `poll`.

        Raises SrdError when the endpoint is closed and the queue empty.
        """
        while not self._entries:
            if self._closed:
                raise SrdError("the endpoint is closed, and every completion was taken")
            await self._changed.wait()
        return self.poll(most)

    def push(self, entry: WorkCompletion) -> None:
        """Add an entry. For the endpoint."""
        self._entries.append(entry)
        self._changed.notify()

    def close(self) -> None:
        """Wake the waiting task; from then on `wait` raises when the queue is empty. For the endpoint."""
        self._closed = True
        self._changed.notify()
