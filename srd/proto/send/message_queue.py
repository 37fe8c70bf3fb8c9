"""Messages that are not wholly packetized, in the order of posting; any of them may be removed, at a constant cost.

One that is removed stays in the queue, marked as packetized, until it is the first, or until these are as many as the
others: a deque looks at all before the one that it removes, 4 ms of a quarter of a million. The first is never such.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import islice

from srd.proto.lazy_deque import LazyDeque
from srd.proto.send.work_queue import WorkQueueEntry


class MessageQueue(LazyDeque[WorkQueueEntry]):
    """A FIFO. Its length and its iterator count those that were removed, too."""

    __slots__ = ("_removed",)

    def __init__(self) -> None:
        super().__init__()
        self._removed = 0

    def front(self, count: int) -> Iterator[WorkQueueEntry]:
        """Yield what is left of the first `count` messages."""
        return (wqe for wqe in islice(self, count) if not wqe.packetized)

    def popleft(self) -> WorkQueueEntry:
        """Remove and return the first message. Raises IndexError when there is none."""
        first = super().popleft()
        if self._removed:
            self._drop_removed()
        return first

    def remove(self, wqe: WorkQueueEntry) -> None:
        """Remove a message of this queue, wherever it is."""
        wqe.packetized = True
        self._removed += 1
        self._drop_removed()

    def _drop_removed(self) -> None:
        if 2 * self._removed > len(self):
            self._items = deque([wqe for wqe in self if not wqe.packetized]) or None
            self._removed = 0
        while self and self[0].packetized:
            super().popleft()
            self._removed -= 1
