"""Messages that are not wholly packetized: which one the next burst is taken from.

Three queues. READs go first: each is one header, and at most MAX_READS may be unanswered.
Messages that need credit (SEND, WRITE with immediate) and those that do not (WRITE, RESPONSE) alternate, burst by
burst, so that neither a long message of one kind nor a receiver that grants no credit blocks the other kind. Of the
latter the flows take turns, too (`send.flow_queue`).
"""

from __future__ import annotations

from itertools import chain
from typing import Final

from srd.proto.config import MAX_FLOWS
from srd.proto.send.batch import SendBatch
from srd.proto.send.flow_control import Credit
from srd.proto.send.flow_queue import FlowQueue
from srd.proto.send.message_queue import MessageQueue
from srd.proto.send.work_queue import WorkQueueEntry
from srd.proto.wire.data import Opcode

_READ: Final = int(Opcode.READ)  # a plain integer compares faster than an enum's member

MAX_READS: Final = 128
"""READs that may be unanswered, so that a responder's memory for them is bounded. The responder allows twice as many,
since it learns later than the requester that a RESPONSE has arrived."""


BACKLOG_MESSAGES: Final = 64
"""Messages of each queue that one announcement counts: enough for several round trips, and quickly counted."""


class SendScheduler:
    """`add` messages, packetize from `head`, report by `on_packetized` how much."""

    __slots__ = ("_credit", "_reads", "_sends", "_tagged", "_tagged_turn", "outstanding_reads")

    def __init__(self, credit: Credit, *, flows: int = MAX_FLOWS) -> None:
        """`flows`: how many may have a message that is partially packetized."""
        self.outstanding_reads = 0
        self._credit = credit
        self._reads = MessageQueue()
        self._tagged = FlowQueue(limit=flows)
        self._sends = MessageQueue()
        self._tagged_turn = False

    def add(self, wqe: WorkQueueEntry) -> None:
        """Queue a message."""
        if wqe.needs_credit:
            self._sends.append(wqe)
        elif wqe.opcode == _READ:
            self._reads.append(wqe)
        else:
            self._tagged.append(wqe)

    def head(self) -> WorkQueueEntry | None:
        """Return the message that is next, if any may be sent."""
        if self._reads and self.outstanding_reads < MAX_READS:
            return self._reads[0]
        send = self._sends[0] if self._sends else None
        if send is not None and not (send.next_offset or self._credit.covers(send.credit_bytes)):
            send = None
        if self._tagged and (self._tagged_turn or send is None):
            return self._tagged.head()
        return send

    @property
    def partial_flows(self) -> int:
        """Flows with a message that is partially packetized."""
        return self._tagged.partial

    def backlog_bytes(self, segment_bytes: int) -> int:
        """Return how much may be sent now, in packets of `segment_bytes` with headers; of long queues a part."""
        backlog_bytes = granted_bytes = 0
        for send in self._sends.front(BACKLOG_MESSAGES):
            granted_bytes += 0 if send.next_offset else send.credit_bytes
            if not send.next_offset and not self._credit.covers(granted_bytes):
                break
            backlog_bytes += send.left_bytes(segment_bytes)
        for wqe in chain(self._reads.front(BACKLOG_MESSAGES), self._tagged.front(BACKLOG_MESSAGES)):
            backlog_bytes += wqe.left_bytes(segment_bytes)
        return backlog_bytes

    def on_packetized(self, wqe: WorkQueueEntry, *, size_bytes: int) -> None:
        """Note that up to `size_bytes` of `head`'s payload were packetized."""
        before = wqe.next_offset
        wqe.next_offset = min(before + size_bytes, wqe.carried_bytes)
        wqe.packetized = wqe.next_offset == wqe.carried_bytes
        if wqe.needs_credit:
            self._tagged_turn = True
            if before == 0:
                self._credit.consume(wqe.credit_bytes, messages=1)
            if wqe.packetized:
                self._sends.popleft()
        elif wqe.opcode == _READ:
            self.outstanding_reads += 1
            self._reads.popleft()
        else:
            self._tagged_turn = False
            self._tagged.advance(wqe, was_partial=before > 0)

    def on_batch_packetized(self, wqe: WorkQueueEntry, batch: SendBatch, *, count: int) -> None:
        """Note that so many messages of a batch, the `head`, were packetized."""
        self._tagged_turn = True
        self._credit.consume(count * wqe.length, messages=count)
        batch.packetized += count
        if batch.packetized == batch.count:
            wqe.packetized = True
            self._sends.popleft()

    def remove(self, wqe: WorkQueueEntry) -> None:
        """Remove a message that is not wholly packetized, and never will be."""
        if wqe.needs_credit:
            self._sends.remove(wqe)
        elif wqe.opcode == _READ:
            self._reads.remove(wqe)
        else:
            self._tagged.remove(wqe)

    @property
    def needs_credit(self) -> bool:
        """Whether the next message that needs credit waits for it."""
        if not self._sends:
            return False
        send = self._sends[0]
        return not send.next_offset and not self._credit.covers(send.credit_bytes)

    def rnr_exhausted(self) -> list[WorkQueueEntry]:
        """Return the messages that wait for credit and whose retry budget is spent."""
        if not self.needs_credit:
            return []
        waiting = self._sends.front(len(self._sends))
        return [send for send in waiting if not send.next_offset and self._credit.retries_exhausted(send.rnr_count)]
