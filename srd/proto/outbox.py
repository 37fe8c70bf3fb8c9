"""Work requests towards one peer: posted, acknowledged, given up.

A message that is given up (refused, cancelled, overdue) turns VOID: its request completes at once, and what of it is
not acknowledged goes out again without payload, until the responder has forgotten it. If it was not wholly cut, one
packet more is cut, since the responder may have acknowledged all the others. What was never cut just goes, but for an
answer to a read: its requester waits to be told.

Refused packets are not acknowledged, so they come to be VOID as lost packets do, when the next ones are reported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from srd.proto.backlog import Backlog
from srd.proto.batch import Batch
from srd.proto.credit import Credit
from srd.proto.requests import Requests
from srd.proto.sent import Outbound, SendRun, SentPackets
from srd.proto.seqset import mask
from srd.proto.status import Status
from srd.proto.wire import HEADER_BYTES, IMMEDIATE, Opcode, Words


class Outbox:
    """`post` and `respond` put messages in; `acknowledged`, `give_up` and `end` take them out."""

    def __init__(self, sent: SentPackets, *, credit: Credit, send_first: Callable[[SendRun], None]) -> None:
        """Take `send_first` to send a packet that was cut out of turn."""
        self.credit = credit
        self.backlog = Backlog(credit)
        self.requests = Requests()
        self.responses = 0  # answers to reads that are not wholly acknowledged
        self.failed: list[tuple[int, Status]] = []  # requests that ended early, for the owner to take
        self.succeeded: list[tuple[int, int]] = []  # of batches: requests (first, count), for the owner to take
        self._sent = sent
        self._send_first = send_first
        self._next_message = 0

    def post(
        self,
        request: int | None,
        *,
        payload_offset: int,
        length: int,
        flags: int = Opcode.SEND,
        immediate: int = 0,
        key: int = 0,
        remote_offset: int = 0,
        local_key: int = 0,
        local_offset: int = 0,
    ) -> Outbound:
        """Queue a message; the arguments are those of `Outbound`."""
        message = self._next_message & 0xFFFFFFFF
        outbound = Outbound(
            request, message, payload_offset, length, immediate, flags, key, remote_offset, local_key, local_offset
        )
        outbound.rounds = self.credit.rounds
        self._next_message += 1
        self.backlog.add(outbound)
        self.requests.add(outbound)
        return outbound

    def post_batch(self, request: int, *, places: Words, length: int, immediate: int | None, owner: object) -> None:
        """Queue sends of one length, a packet each, as the requests from `request` on; `owner` lives as long."""
        count = len(places)
        if self._next_message + count - 1 >> 32 != self._next_message >> 32:
            self._next_message = (self._next_message >> 32) + 1 << 32  # their numbers must count up on the wire, too
        flags = Opcode.SEND if immediate is None else Opcode.SEND | IMMEDIATE
        outbound = self.post(request, payload_offset=0, length=length, flags=flags, immediate=immediate or 0)
        outbound.batch = Batch(places, owner)
        self._next_message += count - 1

    def respond(self, read: int, *, payload_offset: int | None, length: int, key: int) -> None:
        """Answer the peer's READ of message number `read` from registration `key`; without an offset: refuse it."""
        outbound = self.post(
            None, payload_offset=payload_offset or 0, length=length, flags=Opcode.RESPONSE, key=read, local_key=key
        )
        self.responses += 1
        if payload_offset is None:
            self.give_up(outbound, status=Status.REMOTE_ERROR_BAD_ADDRESS)

    def read(self, message: int) -> Outbound | None:
        """Return the READ of this message number, if it is open."""
        outbound = self.requests.numbered(message)
        return outbound if outbound is not None and outbound.opcode == Opcode.READ else None

    def acknowledged(self, done: Iterable[Outbound]) -> list[int]:
        """Take messages that are wholly acknowledged; return the requests that have succeeded by it."""
        requests = []
        for outbound in done:
            if outbound.opcode == Opcode.RESPONSE:
                self.responses -= 1
            if outbound.ended or outbound.opcode == Opcode.READ:  # a read's answer ends it
                continue
            if outbound.batch is not None and not self._take_batch(outbound, outbound.batch):
                continue
            self.end(outbound)
            if outbound.request is not None and outbound.batch is None:
                requests.append(outbound.request)
        return requests

    def _take_batch(self, outbound: Outbound, batch: Batch) -> bool:
        """Tell of the messages of a batch that succeeded; return whether it was the last of them."""
        first = outbound.request or 0
        self.succeeded += [(first + index, count) for index, count in batch.take()]
        return batch.ended == mask(batch.count)

    def end(self, outbound: Outbound) -> None:
        """Note that a message has served its purpose."""
        self.requests.end(outbound)
        if outbound.batch is not None:
            outbound.batch.owner = None  # records of what was sent outlive it
        if outbound.opcode == Opcode.READ and outbound.cut:
            self.backlog.reads_unanswered -= 1

    def give_up(self, outbound: Outbound, *, status: Status) -> None:
        """End a message early, with this status."""
        self.failed += [(request, status) for request in outbound.open_requests]
        self.end(outbound)
        outbound.why = status
        if outbound.end_psn:
            outbound.void = True
            if not outbound.cut:
                self.backlog.remove(outbound)
                outbound.cut = True
                if outbound.batch is None:  # of a batch what was cut are whole messages
                    self._send_first(
                        self._sent.add(outbound, offset=outbound.next_offset, count=1, packet_bytes=HEADER_BYTES)
                    )
        elif outbound.opcode == Opcode.RESPONSE:
            outbound.void, outbound.carried_bytes = True, 0
        else:
            self.backlog.remove(outbound)

    def flush(self, *, status: Status) -> None:
        """End every open request with this status."""
        for outbound in self.requests.open:
            self.give_up(outbound, status=status)

    def refused(self, message: int, *, status: Status) -> None:
        """Note that the responder refused a message of this number."""
        outbound = self.requests.numbered(message)
        if outbound is not None and outbound.end_psn:
            self.give_up(outbound, status=status)

    def end_unready(self) -> None:
        """End the sends that the receiver was not ready for too often."""
        for outbound in self.backlog.unready():
            self.give_up(outbound, status=Status.REMOTE_ERROR_RNR)

    def end_dropped(self) -> bool:
        """End the sends on their way that were dropped for want of memory too often; return whether there were any."""
        dropped = [send for send in self.requests.started_sends() if self.credit.spent(send.rounds)]
        for outbound in dropped:
            self.give_up(outbound, status=Status.REMOTE_ERROR_RNR)
        if dropped:
            self.credit.forgive()  # they take no memory any more, and the others have tries of their own
        return bool(dropped)

    def end_overdue(self, *, now: float) -> None:
        """End the requests whose time is up: honestly, if it was the receiver's memory that they waited for."""
        for outbound in self.requests.overdue(now=now):
            waited = outbound.needs_credit and not outbound.end_psn and self.backlog.starving
            self.give_up(outbound, status=Status.REMOTE_ERROR_RNR if waited else Status.LOCAL_ERROR_UNRESP_REMOTE)

    def revoke(self, key: int) -> None:
        """Note that a registration of our own is gone: what uses it ends."""
        for outbound in self.requests.using(key):
            reads = outbound.opcode == Opcode.READ
            self.give_up(outbound, status=Status.LOCAL_ERROR_INVALID_LKEY if reads else Status.REMOTE_ERROR_BAD_ADDRESS)
