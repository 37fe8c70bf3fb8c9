"""Messages that are not wholly packetized, in the order of posting; any of them may be removed, at a constant cost.

One that is removed stays in the queue, with no packet left, until it is the first, or until these are as many as the
others: a deque looks at all before the one that it removes, 4 ms of a quarter of a million. The first is never such.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import islice

from srd.proto.base.lazy_deque import LazyDeque
from srd.proto.outgoing.message import OutgoingMessage


class MessageQueue(LazyDeque[OutgoingMessage]):
    """A FIFO. Its length and its iterator count those that were removed, too."""

    __slots__ = ("_removed",)

    def __init__(self) -> None:
        super().__init__()
        self._removed = 0

    def front(self, count: int) -> Iterator[OutgoingMessage]:
        """Yield what is left of the first `count` messages."""
        return (message for message in islice(self, count) if message.left)

    def popleft(self) -> OutgoingMessage:
        """Remove and return the first message. Raises IndexError when there is none."""
        first = super().popleft()
        if self._removed:
            self._drop_removed()
        return first

    def remove(self, message: OutgoingMessage) -> None:
        """Remove a message of this queue, wherever it is."""
        message.left = 0
        self._removed += 1
        self._drop_removed()

    def _drop_removed(self) -> None:
        if 2 * self._removed > len(self):
            self._items = deque([message for message in self if message.left]) or None
            self._removed = 0
        while self and not self[0].left:
            super().popleft()
            self._removed -= 1
