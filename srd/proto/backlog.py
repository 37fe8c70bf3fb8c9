"""Messages that are not wholly cut into packets: which one the next burst is cut from.

Three lanes, each in the order of posting. READs go first: they are one header each, and at most MAX_READS may be
unanswered. What needs credit (SEND, WRITE with immediate) and what does not (WRITE, RESPONSE) take turns, burst by
burst, so that neither a long message of one kind nor a receiver that grants no credit holds up the other kind.
"""

from __future__ import annotations

from srd.proto.batch import Batch
from srd.proto.credit import Credit
from srd.proto.fifo import Fifo
from srd.proto.sent import Outbound
from srd.proto.wire import Opcode

_READ = int(Opcode.READ)  # a plain integer compares faster than an enum's member

MAX_READS = 128
"""Reads that may be unanswered, so that a responder's memory for them is bounded; it allows for twice as many, as it
learns later than the requester that an answer has arrived."""


class Backlog:
    """`add` messages, cut from `head`, tell by `cut` how much."""

    __slots__ = ("_credit", "_reads", "_sends", "_tagged", "_tagged_turn", "reads_unanswered")

    def __init__(self, credit: Credit) -> None:
        self.reads_unanswered = 0
        self._credit = credit
        self._reads = Fifo[Outbound]()
        self._tagged = Fifo[Outbound]()
        self._sends = Fifo[Outbound]()
        self._tagged_turn = False

    def add(self, outbound: Outbound) -> None:
        """Queue a message."""
        self._lane(outbound).append(outbound)

    def head(self) -> Outbound | None:
        """Return the message whose turn it is, if any may be sent."""
        if self._reads and self.reads_unanswered < MAX_READS:
            return self._reads[0]
        send = self._sends[0] if self._sends else None
        if send is not None and not (send.next_offset or self._credit.covers(send.credit_bytes)):
            send = None
        if self._tagged and (self._tagged_turn or send is None):
            return self._tagged[0]
        return send

    def cut(self, outbound: Outbound, *, size_bytes: int) -> None:
        """Note that up to `size_bytes` of `head`'s payload were cut."""
        if outbound.needs_credit:
            self._tagged_turn = True
            if outbound.next_offset == 0:
                self._credit.start(outbound.credit_bytes, messages=1)
        elif outbound.opcode == _READ:
            self.reads_unanswered += 1
        else:
            self._tagged_turn = False
        outbound.next_offset = min(outbound.next_offset + size_bytes, outbound.carried_bytes)
        if outbound.next_offset == outbound.carried_bytes:
            outbound.cut = True
            self._lane(outbound).popleft()

    def cut_batch(self, outbound: Outbound, batch: Batch, *, count: int) -> None:
        """Note that so many messages of a batch, the `head`, were given their packets."""
        self._tagged_turn = True
        self._credit.start(count * outbound.length, messages=count)
        batch.cut += count
        if batch.cut == batch.count:
            outbound.cut = True
            self._sends.popleft()

    def remove(self, outbound: Outbound) -> None:
        """Take a message out that is not wholly cut."""
        self._lane(outbound).remove(outbound)

    @property
    def starving(self) -> bool:
        """Whether the next message that needs credit waits for it."""
        if not self._sends:
            return False
        send = self._sends[0]
        return not send.next_offset and not self._credit.covers(send.credit_bytes)

    def unready(self) -> list[Outbound]:
        """Return the messages that wait for credit and whose retry budget is spent."""
        if not self.starving:
            return []
        return [send for send in self._sends if not send.next_offset and self._credit.spent(send.rounds)]

    def _lane(self, outbound: Outbound) -> Fifo[Outbound]:
        if outbound.needs_credit:
            return self._sends
        return self._reads if outbound.opcode == _READ else self._tagged
