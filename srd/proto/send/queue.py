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

from srd.proto.config import MAX_FLOWS
from srd.proto.events import BatchCompletion, Completion, EventQueue
from srd.proto.send.batch import SendBatch
from srd.proto.send.flow_control import Credit
from srd.proto.send.inflight import Inflight
from srd.proto.send.scheduler import SendScheduler
from srd.proto.send.work_queue import WorkQueue, WorkQueueEntry
from srd.proto.seqset import mask
from srd.proto.wire.data import HEADER_BYTES, IMMEDIATE, Opcode
from srd.proto.wire.status import Status
from srd.proto.work_request import BatchRequest, WorkRequest


class SendQueue:
    """`post` and `respond` add messages; `on_acknowledged`, `abort` and `finish` remove them."""

    def __init__(
        self, peer: int, *, inflight: Inflight, credit: Credit, events: EventQueue, flows: int = MAX_FLOWS
    ) -> None:
        """Take the peer's number; `events`, to which the completions are appended; how many `flows` take turns."""
        self.credit = credit
        self.scheduler = SendScheduler(credit, flows=flows)
        self.work_queue = WorkQueue()
        self.responses = 0  # RESPONSEs that are not wholly acknowledged
        self._peer = peer
        self._inflight = inflight
        self._events = events
        self._next_message = 0

    def post(self, wr: WorkRequest) -> None:
        """Queue a work request."""
        immediate = wr.immediate
        if immediate is None:
            # A write without an immediate carries its start offset: see "Registered memory" in PROTOCOL.md.
            immediate = wr.offset & 0xFFFFFFFF if wr.opcode == Opcode.WRITE else 0
        self._add(
            WorkQueueEntry(
                wr.request,
                self._allocate(1),
                wr.payload_offset,
                wr.length,
                immediate,
                wr.opcode if wr.immediate is None else wr.opcode | IMMEDIATE,
                wr.key,
                wr.offset,
                wr.local_key,
                wr.local_offset,
                wr.flow,
            )
        )

    def post_batch(self, batch: BatchRequest) -> None:
        """Queue sends of one packet each."""
        flags = Opcode.SEND if batch.immediate is None else Opcode.SEND | IMMEDIATE
        message = self._allocate(len(batch.payload_addresses))
        wqe = WorkQueueEntry(batch.first_request, message, 0, batch.length, batch.immediate or 0, flags, batch.key)
        wqe.batch = SendBatch(batch.payload_addresses, batch.owner)
        self._add(wqe)

    def _allocate(self, count: int) -> int:
        """Return the first of `count` message numbers; they have 32 bits, and do not wrap within a batch."""
        if self._next_message + count - 1 >> 32 != self._next_message >> 32:
            self._next_message = (self._next_message >> 32) + 1 << 32
        first = self._next_message & 0xFFFFFFFF
        self._next_message += count
        return first

    def _add(self, wqe: WorkQueueEntry) -> None:
        wqe.rnr_count = self.credit.rnr_count
        self.scheduler.add(wqe)
        self.work_queue.add(wqe)

    def respond(
        self,
        read: int,
        *,
        payload_offset: int | None,
        length: int,
        key: int,
        flow: int = 0,
        refusal: Status = Status.REMOTE_ERROR_BAD_ADDRESS,
    ) -> None:
        """Answer the peer's READ of message number `read` from registration `key`; without an offset refuse it."""
        wqe = WorkQueueEntry(
            None, self._allocate(1), payload_offset or 0, length, 0, Opcode.RESPONSE, key=read, local_key=key, flow=flow
        )
        self._add(wqe)
        self.responses += 1
        if payload_offset is None:
            self.abort(wqe, status=refusal)

    def read(self, message: int) -> WorkQueueEntry | None:
        """Return the READ of this message number, if it is open, and was sent."""
        wqe = self.work_queue.by_message(message)
        return wqe if wqe is not None and wqe.opcode == Opcode.READ and wqe.end_psn else None

    def on_acknowledged(self, done: Iterable[WorkQueueEntry]) -> None:
        """Process messages that are wholly acknowledged, and batches of which some are."""
        for wqe in done:
            if wqe.opcode == Opcode.RESPONSE:
                self.responses -= 1
            if wqe.ended or wqe.opcode == Opcode.READ:  # a READ is ended by its RESPONSE
                continue
            if wqe.batch is not None and not self._complete_batch(wqe, wqe.batch):
                continue
            self.finish(wqe)
            if wqe.request is not None and wqe.batch is None:
                self._events.append(Completion(self._peer, wqe.request, Status.OK))

    def _complete_batch(self, wqe: WorkQueueEntry, batch: SendBatch) -> bool:
        """Complete the messages of a batch that were acknowledged; return whether all have ended."""
        first = wqe.request or 0
        self._events.extend(BatchCompletion(self._peer, first + index, count) for index, count in batch.pop_completed())
        return batch.ended == mask(batch.count)

    def finish(self, wqe: WorkQueueEntry) -> None:
        """Remove a message that has ended."""
        self.work_queue.remove(wqe)
        if wqe.batch is not None:
            wqe.batch.owner = None  # records of sent packets live longer than the batch
        if wqe.opcode == Opcode.READ and wqe.packetized:
            self.scheduler.outstanding_reads -= 1

    def abort(self, wqe: WorkQueueEntry, *, status: Status) -> None:
        """End a message early, with this status."""
        self._events.extend(Completion(self._peer, request, status) for request in wqe.open_requests)
        self.finish(wqe)
        wqe.reason = status
        if wqe.end_psn:
            wqe.aborted = True
            if not wqe.packetized:
                self.scheduler.remove(wqe)
                if wqe.batch is None:  # a batch is packetized in whole messages
                    self._inflight.add_unsent(wqe, offset=wqe.next_offset, packet_bytes=HEADER_BYTES)
        elif wqe.opcode == Opcode.RESPONSE:
            wqe.aborted, wqe.carried_bytes = True, 0
        else:
            self.scheduler.remove(wqe)

    def flush(self, *, status: Status) -> None:
        """End every open request with this status."""
        for wqe in self.work_queue.open:
            self.abort(wqe, status=status)

    def on_nack(self, message: int, *, status: Status) -> None:
        """Abort the message of this number, which the responder refused."""
        if (batch_wqe := self.work_queue.batch_of(message)) is not None:
            self._on_nack_in_batch(batch_wqe, message, status=status)
        elif (wqe := self.work_queue.by_message(message)) is not None and wqe.end_psn:
            wqe.refused = True
            self.abort(wqe, status=status)

    def _on_nack_in_batch(self, wqe: WorkQueueEntry, message: int, *, status: Status) -> None:
        """End one message of a batch; its packet is sent again as ABORTED, the others are not affected."""
        batch, index = wqe.batch, message - wqe.message
        if batch is None or index >= batch.packetized or not batch.refuse(index, status=status):
            return
        self._events.append(Completion(self._peer, (wqe.request or 0) + index, status))
        if batch.ended == mask(batch.count):
            self.finish(wqe)

    def fail_unready(self) -> None:
        """End the sends that wait for credit and whose RNR retries are exhausted."""
        for wqe in self.scheduler.rnr_exhausted():
            self.abort(wqe, status=Status.REMOTE_ERROR_RNR)

    def fail_dropped(self) -> bool:
        """End the started sends that were dropped for lack of memory too often; return whether there were any."""
        dropped = [send for send in self.work_queue.started_sends() if self.credit.retries_exhausted(send.rnr_count)]
        for wqe in dropped:
            self.abort(wqe, status=Status.REMOTE_ERROR_RNR)
        if dropped:
            self.credit.on_progress()  # they need no memory any more, and the others have their own retries
        return bool(dropped)

    def fail_overdue(self, *, now: float) -> None:
        """End the requests whose time is up; with REMOTE_ERROR_RNR if they only waited for the receiver's credit."""
        for wqe in self.work_queue.overdue(now=now):
            waited = wqe.needs_credit and not wqe.end_psn and self.scheduler.needs_credit
            self.abort(wqe, status=Status.REMOTE_ERROR_RNR if waited else Status.LOCAL_ERROR_UNRESP_REMOTE)

    def on_deregistered(self, is_withdrawn: Callable[[int], bool]) -> None:
        """End the requests whose registration of this end no longer exists."""
        for wqe in self.work_queue.using_keys(is_withdrawn):
            reads = wqe.opcode == Opcode.READ
            self.abort(wqe, status=Status.LOCAL_ERROR_INVALID_LKEY if reads else Status.REMOTE_ERROR_BAD_ADDRESS)
