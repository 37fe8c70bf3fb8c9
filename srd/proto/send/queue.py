"""Work requests to one peer: posted, acknowledged, aborted.

A message that is aborted (refused, cancelled, overdue) completes its request at once. Its packets that are not
acknowledged are sent again with the flag ABORTED and without payload, until the responder has discarded the message. If
it was not wholly packetized, one more packet is sent, since the responder may have acknowledged all the others. A
message of which nothing was packetized is only removed, except a RESPONSE: its requester waits for an answer.

Refused packets are not acknowledged. They are sent again as ABORTED once loss detection declares them lost, when later
packets are reported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from srd.proto.send.batch import SendBatch
from srd.proto.send.flow_control import Credit
from srd.proto.send.inflight import Inflight, PsnRange, WorkRequest
from srd.proto.send.scheduler import SendScheduler
from srd.proto.send.work_requests import WorkRequestTable
from srd.proto.seqset import mask
from srd.proto.wire.data import HEADER_BYTES, IMMEDIATE, Lanes, Opcode
from srd.proto.wire.status import Status


class SendQueue:
    """`post` and `respond` add messages; `on_acknowledged`, `abort` and `finish` remove them."""

    def __init__(self, sent: Inflight, *, credit: Credit, send_first: Callable[[PsnRange], None]) -> None:
        """Take `send_first`, which sends a packet ahead of all others."""
        self.credit = credit
        self.scheduler = SendScheduler(credit)
        self.work_requests = WorkRequestTable()
        self.responses = 0  # RESPONSEs that are not wholly acknowledged
        self.failed: list[tuple[int, Status]] = []  # requests that ended early, collected by the owner
        self.succeeded: list[tuple[int, int]] = []  # of batches: requests (first, count), collected by the owner
        self._inflight = sent
        self._retransmit_first = send_first
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
    ) -> WorkRequest:
        """Queue a message; the arguments are those of `WorkRequest`."""
        message = self._next_message & 0xFFFFFFFF
        wr = WorkRequest(
            request, message, payload_offset, length, immediate, flags, key, remote_offset, local_key, local_offset
        )
        wr.rnr_count = self.credit.rnr_count
        self._next_message += 1
        self.scheduler.add(wr)
        self.work_requests.add(wr)
        return wr

    def post_batch(
        self, request: int, *, payload_addresses: Lanes, length: int, immediate: int | None, owner: object
    ) -> None:
        """Queue sends of one packet each, as the requests from `request` on; `owner` is kept alive until all end."""
        count = len(payload_addresses)
        if self._next_message + count - 1 >> 32 != self._next_message >> 32:
            self._next_message = (self._next_message >> 32) + 1 << 32  # the 32-bit numbers must not wrap in a batch
        flags = Opcode.SEND if immediate is None else Opcode.SEND | IMMEDIATE
        wr = self.post(request, payload_offset=0, length=length, flags=flags, immediate=immediate or 0)
        wr.batch = SendBatch(payload_addresses, owner)
        self._next_message += count - 1

    def respond(self, read: int, *, payload_offset: int | None, length: int, key: int) -> None:
        """Answer the peer's READ of message number `read` from registration `key`; without an offset refuse it."""
        wr = self.post(
            None, payload_offset=payload_offset or 0, length=length, flags=Opcode.RESPONSE, key=read, local_key=key
        )
        self.responses += 1
        if payload_offset is None:
            self.abort(wr, status=Status.REMOTE_ERROR_BAD_ADDRESS)

    def read(self, message: int) -> WorkRequest | None:
        """Return the READ of this message number, if it is open."""
        wr = self.work_requests.by_message(message)
        return wr if wr is not None and wr.opcode == Opcode.READ else None

    def on_acknowledged(self, done: Iterable[WorkRequest]) -> list[int]:
        """Process messages that are wholly acknowledged; return the requests that have succeeded."""
        requests = []
        for wr in done:
            if wr.opcode == Opcode.RESPONSE:
                self.responses -= 1
            if wr.ended or wr.opcode == Opcode.READ:  # a READ is ended by its RESPONSE
                continue
            if wr.batch is not None and not self._complete_batch(wr, wr.batch):
                continue
            self.finish(wr)
            if wr.request is not None and wr.batch is None:
                requests.append(wr.request)
        return requests

    def _complete_batch(self, wr: WorkRequest, batch: SendBatch) -> bool:
        """Record the messages of a batch that succeeded; return whether all have ended."""
        first = wr.request or 0
        self.succeeded += [(first + index, count) for index, count in batch.pop_completed()]
        return batch.ended == mask(batch.count)

    def finish(self, wr: WorkRequest) -> None:
        """Remove a message that has ended."""
        self.work_requests.remove(wr)
        if wr.batch is not None:
            wr.batch.owner = None  # records of sent packets live longer than the batch
        if wr.opcode == Opcode.READ and wr.packetized:
            self.scheduler.outstanding_reads -= 1

    def abort(self, wr: WorkRequest, *, status: Status) -> None:
        """End a message early, with this status."""
        self.failed += [(request, status) for request in wr.open_requests]
        self.finish(wr)
        wr.reason = status
        if wr.end_psn:
            wr.aborted = True
            if not wr.packetized:
                self.scheduler.remove(wr)
                wr.packetized = True
                if wr.batch is None:  # a batch is packetized in whole messages
                    self._retransmit_first(
                        self._inflight.add(wr, offset=wr.next_offset, count=1, packet_bytes=HEADER_BYTES)
                    )
        elif wr.opcode == Opcode.RESPONSE:
            wr.aborted, wr.carried_bytes = True, 0
        else:
            self.scheduler.remove(wr)

    def flush(self, *, status: Status) -> None:
        """End every open request with this status."""
        for wr in self.work_requests.open:
            self.abort(wr, status=status)

    def on_nack(self, message: int, *, status: Status) -> None:
        """Abort the message of this number, which the responder refused."""
        wr = self.work_requests.by_message(message)
        if wr is not None and wr.end_psn:
            self.abort(wr, status=status)

    def fail_unready(self) -> None:
        """End the sends that wait for credit and whose RNR retries are exhausted."""
        for wr in self.scheduler.rnr_exhausted():
            self.abort(wr, status=Status.REMOTE_ERROR_RNR)

    def fail_dropped(self) -> bool:
        """End the started sends that were dropped for lack of memory too often; return whether there were any."""
        dropped = [send for send in self.work_requests.started_sends() if self.credit.retries_exhausted(send.rnr_count)]
        for wr in dropped:
            self.abort(wr, status=Status.REMOTE_ERROR_RNR)
        if dropped:
            self.credit.on_progress()  # they need no memory any more, and the others have their own retries
        return bool(dropped)

    def fail_overdue(self, *, now: float) -> None:
        """End the requests whose time is up; with REMOTE_ERROR_RNR if they only waited for the receiver's credit."""
        for wr in self.work_requests.overdue(now=now):
            waited = wr.needs_credit and not wr.end_psn and self.scheduler.needs_credit
            self.abort(wr, status=Status.REMOTE_ERROR_RNR if waited else Status.LOCAL_ERROR_UNRESP_REMOTE)

    def on_deregistered(self, key: int) -> None:
        """End the requests that use a registration of this end that no longer exists."""
        for wr in self.work_requests.using_key(key):
            reads = wr.opcode == Opcode.READ
            self.abort(wr, status=Status.LOCAL_ERROR_INVALID_LKEY if reads else Status.REMOTE_ERROR_BAD_ADDRESS)
