"""Messages of several flows that take turns, burst by burst; within a flow they go in the order of posting.

Only `limit` flows may have a message that is partially packetized, since each of these needs a PSN of the window if it
is aborted; flows beyond that wait until one of these messages is wholly packetized.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice

from srd.proto.send.message_queue import MessageQueue
from srd.proto.send.work_queue import WorkQueueEntry


class FlowQueue:
    """`append` messages, packetize from `head`, report each burst by `advance`."""

    __slots__ = ("_flows", "_limit", "partial")

    def __init__(self, *, limit: int) -> None:
        self.partial = 0  # flows whose first message is partially packetized
        self._flows: dict[int, MessageQueue] = {}  # in the order of their turns
        self._limit = limit

    def __bool__(self) -> bool:
        return bool(self._flows)

    def front(self, count: int) -> Iterator[WorkQueueEntry]:
        """Yield what is left of the first `count` messages."""
        messages = chain.from_iterable(self._flows.values())
        return (wqe for wqe in islice(messages, count) if not wqe.packetized)

    def append(self, wqe: WorkQueueEntry) -> None:
        """Queue a message of its flow."""
        queue = self._flows.get(wqe.flow)
        if queue is None:
            queue = self._flows[wqe.flow] = MessageQueue()
        queue.append(wqe)

    def head(self) -> WorkQueueEntry:
        """Return the message whose turn it is. There must be one."""
        first = next(iter(self._flows.values()))[0]
        if first.next_offset or self.partial < self._limit:
            return first
        return next(queue[0] for queue in self._flows.values() if queue[0].next_offset)

    def advance(self, wqe: WorkQueueEntry, *, was_partial: bool) -> None:
        """Note that a burst of `head` was packetized: it is another flow's turn, and a finished message leaves."""
        self.partial += (not wqe.packetized) - was_partial
        queue = self._flows[wqe.flow]
        if wqe.packetized:
            queue.popleft()
        if not queue:
            del self._flows[wqe.flow]
        elif len(self._flows) > 1:
            self._flows[wqe.flow] = self._flows.pop(wqe.flow)

    def remove(self, wqe: WorkQueueEntry) -> None:
        """Remove a message that is not wholly packetized."""
        self.partial -= bool(wqe.next_offset)
        queue = self._flows[wqe.flow]
        queue.remove(wqe)
        if not queue:
            del self._flows[wqe.flow]
