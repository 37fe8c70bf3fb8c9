"""The messages of a peer that need no credit, and whose turn it is among them.

READs go first: each is one header, and at most `MAX_READS` may be unanswered. WRITEs and RESPONSEs are of flows, which
take turns, burst by burst. Only `max_partial_flows` flows may have a message that is partially packetized, since each
of these needs a PSN of the window if it is aborted; flows beyond that wait until one of these messages is wholly
packetized.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice
from typing import Final

from srd.proto.outgoing.message import OutgoingMessage
from srd.proto.send.message_queue import MessageQueue
from srd.proto.wire.data import Opcode

MAX_READS: Final = 128
"""READs that may be unanswered, so that a responder's memory for them is bounded. The responder allows twice as many,
since it learns later than the requester that a RESPONSE has arrived."""
_READ: Final = int(Opcode.READ)  # a plain integer compares faster than an enum's member


class Uncredited:
    """READs and flows: `add` a message; the `head_of_flows` has the next turn, unless `next_read` goes first."""

    __slots__ = ("_flows", "_max_partial_flows", "_reads", "outstanding_reads", "partial_flows")

    def __init__(self, *, max_partial_flows: int) -> None:
        self.outstanding_reads = 0
        """READs that were sent, and are not answered."""
        self.partial_flows = 0
        """Flows whose first message is partially packetized."""
        self._reads = MessageQueue()
        self._flows: dict[int, MessageQueue] = {}  # in the order of their turns
        self._max_partial_flows = max_partial_flows

    def add(self, message: OutgoingMessage) -> None:
        """Append a message to its flow, or to the READs."""
        if message.opcode == _READ:
            self._reads.append(message)
            return
        queue = self._flows.get(message.wr.flow)
        if queue is None:
            queue = self._flows[message.wr.flow] = MessageQueue()
        queue.append(message)

    @property
    def has_flows(self) -> bool:
        """Whether any WRITE or RESPONSE waits for its turn."""
        return bool(self._flows)

    def next_read(self) -> OutgoingMessage | None:
        """Return the READ that may be sent now."""
        return self._reads[0] if self._reads and self.outstanding_reads < MAX_READS else None

    def head_of_flows(self) -> OutgoingMessage | None:
        """Return the message of the flow that has the next turn, and may be sent."""
        may_begin = self.partial_flows < self._max_partial_flows
        for queue in self._flows.values():
            if may_begin or queue[0].packetized:
                return queue[0]
        return None

    def on_packetized(self, message: OutgoingMessage, *, was_partial: bool) -> None:
        """Let another flow have the next turn; a message that is wholly packetized leaves."""
        if message.opcode == _READ:
            self.outstanding_reads += 1
            self._reads.popleft()
            return
        self.partial_flows += message.is_partial - was_partial
        queue = self._flows[message.wr.flow]
        if not message.left:
            queue.popleft()
        if not queue:
            del self._flows[message.wr.flow]
        elif len(self._flows) > 1:
            self._flows[message.wr.flow] = self._flows.pop(message.wr.flow)

    def remove(self, message: OutgoingMessage) -> None:
        """Remove a message that is not wholly packetized, and never will be."""
        if message.opcode == _READ:
            self._reads.remove(message)
            return
        self.partial_flows -= message.is_partial
        queue = self._flows[message.wr.flow]
        queue.remove(message)
        if not queue:
            del self._flows[message.wr.flow]

    def front(self, count: int) -> Iterator[OutgoingMessage]:
        """Yield the first messages, at most `count` READs and as many others."""
        tagged = chain.from_iterable(queue.front(count) for queue in self._flows.values())
        return chain(self._reads.front(count), islice(tagged, count))
