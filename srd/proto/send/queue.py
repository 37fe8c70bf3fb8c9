"""The send queue of a peer: the messages of this end that have not ended, and which one is packetized next.

Found by number. A posted work request is a message, or a batch of them; so is a RESPONSE, which has no work request.

Turns. READs go first. Messages that need credit (SEND, WRITE with immediate) and those that do not (WRITE, RESPONSE)
alternate, burst by burst, so that neither a long message of one kind nor a receiver that grants no credit blocks the
other kind. The former go in the order of posting, the latter by turns of their flows (`send.uncredited`).

Ends. A message that is aborted (refused, cancelled, overdue) completes its request at once. Its packets that are not
acknowledged are sent again with the flag ABORTED and without payload, until the responder has discarded the message. If
it was not wholly packetized, one more packet is sent, since the responder may have acknowledged all the others. A
message of which nothing was packetized is only removed, except a RESPONSE: its requester waits for an answer.

Refused packets are not acknowledged. They are sent again as ABORTED once loss detection declares them lost, when later
packets are reported.

Deadlines. All requests of a peer have the same time limit, so the first one posted is the first overdue. The limit
counts from the peer's first turn after the posting, which follows at once: posting itself needs no clock.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from srd.proto.config import MAX_FLOWS
from srd.proto.events import Completion, EventQueue
from srd.proto.outgoing.flow_control import Credit
from srd.proto.outgoing.inflight import Inflight, PsnRange
from srd.proto.outgoing.message import OutgoingBatch, OutgoingMessage
from srd.proto.send.message_queue import MessageQueue
from srd.proto.send.uncredited import Uncredited
from srd.proto.wire.data import Opcode
from srd.proto.wire.status import Status
from srd.proto.work_request import BatchRequest, WorkRequest

BACKLOG_MESSAGES: Final = 64
"""Messages of each kind that one announcement counts: enough for several round trips, and quickly counted."""
MAX_ENDED: Final = 64
"""Ended requests that are kept beyond as many as are open, until the first one posted has ended: to remove one from the
middle of the queue would cost more than to keep it. One request that the responder leaves open must not keep all."""
_BLOCK_BITS: Final = 7
"""Batches are found by blocks of so many message numbers: 128 are a batch of the usual size."""
_SEND: Final = int(Opcode.SEND)  # plain integers compare faster than an enum's members
_READ: Final = int(Opcode.READ)
_RESPONSE: Final = int(Opcode.RESPONSE)


class SendQueue:
    """`post` and `respond` add messages, `packetize` those at the `head`; acks, `abort` and `finish` remove them."""

    def __init__(
        self,
        peer: int,
        *,
        inflight: Inflight,
        credit: Credit,
        events: EventQueue,
        segment_bytes: int,
        max_partial_flows: int = MAX_FLOWS,
    ) -> None:
        """Take the peer's number, `events`, to which completions are appended, and the payload of a full packet."""
        self.credit = credit
        self.responses = 0  # RESPONSEs that are not wholly acknowledged
        self._peer = peer
        self._inflight = inflight
        self._events = events
        self._segment_bytes = segment_bytes
        self._next_message = 0
        self._requests: dict[int, OutgoingMessage] = {}  # by the caller's number
        self._messages: dict[int, OutgoingMessage] = {}  # by message number; a batch by its first
        self._batches: dict[int, list[OutgoingMessage]] | None = None  # by block of message numbers
        # READs and RESPONSEs by registration, then message.
        self._by_key: dict[int, dict[int, OutgoingMessage]] | None = None
        self._untimed: list[OutgoingMessage] | None = None  # posted since the peer's last turn
        self._timed: deque[OutgoingMessage] | None = None  # may contain some that have ended
        self._sends = MessageQueue()  # all that need credit
        self._uncredited: Uncredited | None = None  # all others
        self._max_partial_flows = max_partial_flows
        self._is_turn_of_flows = False

    # -- posting ------------------------------------------------------------------------------------------------

    def post(self, wr: WorkRequest) -> None:
        """Queue a work request."""
        self._add(OutgoingMessage(wr, self._allocate(1), segment_bytes=self._segment_bytes))

    def post_batch(self, batch: BatchRequest) -> None:
        """Queue sends of one packet each."""
        self._add(OutgoingBatch(batch, self._allocate(len(batch.payload_addresses))))

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
        wr = WorkRequest(0, length, payload_offset or 0, Opcode.RESPONSE, key=read, local_key=key, flow=flow)
        response = OutgoingMessage(wr, self._allocate(1), segment_bytes=self._segment_bytes)
        self._add(response)
        self.responses += 1
        if payload_offset is None:
            self.abort(response, status=refusal)

    def _allocate(self, count: int) -> int:
        """Return the first of `count` message numbers; they have 32 bits, and do not wrap within a batch."""
        if self._next_message + count - 1 >> 32 != self._next_message >> 32:
            self._next_message = (self._next_message >> 32) + 1 << 32
        first = self._next_message & 0xFFFFFFFF
        self._next_message += count
        return first

    def _add(self, message: OutgoingMessage) -> None:
        message.rnr_count = self.credit.rnr_count
        if message.needs_credit:
            self._sends.append(message)
        else:
            if self._uncredited is None:
                self._uncredited = Uncredited(max_partial_flows=self._max_partial_flows)
            self._uncredited.add(message)
        self._messages[message.number] = message
        if message.count > 1:
            if self._batches is None:
                self._batches = {}
            for block in _blocks(message):
                self._batches.setdefault(block, []).append(message)
        if message.wr.local_key:
            if self._by_key is None:
                self._by_key = {}
            self._by_key.setdefault(message.wr.local_key, {})[message.number] = message
        if message.opcode != _RESPONSE:
            self._requests[message.wr.request] = message
            if self._untimed is None:
                self._untimed = []
            self._untimed.append(message)

    # -- turns --------------------------------------------------------------------------------------------------

    @property
    def outstanding_reads(self) -> int:
        """READs that were sent, and are not answered."""
        return 0 if self._uncredited is None else self._uncredited.outstanding_reads

    @property
    def partial_flows(self) -> int:
        """Flows whose first message is partially packetized."""
        return 0 if self._uncredited is None else self._uncredited.partial_flows

    def head(self) -> OutgoingMessage | None:
        """Return the message that is next, if any may be sent."""
        uncredited = self._uncredited
        if uncredited is not None and (read := uncredited.next_read()) is not None:
            return read
        send = self._sends[0] if self._sends else None
        if send is not None and not send.covered(self.credit):
            send = None
        if uncredited is not None and uncredited.has_flows and (self._is_turn_of_flows or send is None):
            return uncredited.head_of_flows()
        return send

    def packetize(self, message: OutgoingMessage, *, count: int) -> PsnRange:
        """Assign PSNs to the next `count` packets of the `head`; then it is another's turn."""
        was_partial = message.is_partial
        if message.needs_credit and not was_partial:
            messages = min(count, message.count)
            self.credit.consume(messages * message.credit_bytes, messages=messages)
        psns = self._inflight.add(message, count=count)
        if message.needs_credit:
            self._is_turn_of_flows = True
            if not message.left:
                self._sends.popleft()
        elif self._uncredited is not None:
            self._is_turn_of_flows = self._is_turn_of_flows and message.opcode == _READ
            self._uncredited.on_packetized(message, was_partial=was_partial)
        return psns

    def _dequeue(self, message: OutgoingMessage) -> None:
        """Remove a message that is not wholly packetized, and never will be."""
        if message.needs_credit:
            self._sends.remove(message)
        elif self._uncredited is not None:
            self._uncredited.remove(message)

    @property
    def needs_credit(self) -> bool:
        """Whether the next message that needs credit waits for it."""
        return bool(self._sends) and not self._sends[0].covered(self.credit)

    @property
    def backlog_bytes(self) -> int:
        """How much may be sent now, in packets with their headers; of long queues a part."""
        backlog_bytes = granted_bytes = 0
        for send in self._sends.front(BACKLOG_MESSAGES):
            if not send.is_partial:
                granted_bytes += send.credit_bytes
                if not self.credit.covered(granted_bytes):
                    break
            backlog_bytes += send.left_bytes
        if self._uncredited is not None:
            backlog_bytes += sum(message.left_bytes for message in self._uncredited.front(BACKLOG_MESSAGES))
        return backlog_bytes

    # -- open requests ------------------------------------------------------------------------------------------

    @property
    def count(self) -> int:
        """How many requests of the caller are open; a batch is one."""
        return len(self._requests)

    def by_request(self, request: int) -> OutgoingMessage | None:
        """Return the open request of this number; a batch is found by its first."""
        return self._requests.get(request)

    def by_number(self, number: int) -> OutgoingMessage | None:
        """Return the open message of this number, or the batch that has it."""
        message = self._messages.get(number)
        if message is None and self._batches:
            for batch in self._batches.get(number >> _BLOCK_BITS, ()):
                if 0 <= number - batch.number < batch.count:
                    return batch
        return message

    def read(self, number: int) -> OutgoingMessage | None:
        """Return the READ of this message number, if it is open, and was sent."""
        message = self._messages.get(number)
        return message if message is not None and message.opcode == _READ and message.packetized else None

    # -- ends ---------------------------------------------------------------------------------------------------

    def on_acknowledged(self, done: Iterable[OutgoingMessage]) -> None:
        """Process messages that are wholly acknowledged, and batches of which some are."""
        for message in done:
            if message.opcode == _RESPONSE:
                self.responses -= 1
            if message.ended or message.opcode == _READ:  # a READ is ended by its RESPONSE
                continue
            if message.complete(self._peer, events=self._events):
                self.finish(message)

    def finish(self, message: OutgoingMessage) -> None:
        """Remove a message that has ended."""
        message.end()
        if self._messages.pop(message.number, None) is not None:
            self._forget(message)
        if message.opcode != _RESPONSE:
            self._requests.pop(message.wr.request, None)
        if not self._messages:  # nor any request: emptied dictionaries keep their tables (see `base.lazy_deque`)
            self._messages.clear()
            self._requests.clear()
            self._by_key = self._batches = None
        if message.opcode == _READ and message.packetized and self._uncredited is not None:
            self._uncredited.outstanding_reads -= 1

    def _forget(self, message: OutgoingMessage) -> None:
        if message.count > 1 and self._batches is not None:
            for block in _blocks(message):
                batches = self._batches[block]
                batches.remove(message)
                if not batches:
                    del self._batches[block]
        if message.wr.local_key and self._by_key is not None:
            same = self._by_key[message.wr.local_key]
            del same[message.number]
            if not same:
                del self._by_key[message.wr.local_key]

    def abort(self, message: OutgoingMessage, *, status: Status) -> None:
        """End a message early, with this status."""
        for request in message.open_requests:
            self._events.append(Completion(self._peer, request, status))
        self.finish(message)
        message.reason = status
        if message.packetized:
            message.aborted = True
            is_partial = message.is_partial
            if message.left:
                self._dequeue(message)
            if is_partial:
                self._inflight.add_abort(message)
        elif message.opcode == _RESPONSE:
            message.aborted, message.carried_bytes, message.left = True, 0, 1
        else:
            self._dequeue(message)

    def flush(self, *, status: Status) -> None:
        """End every open request with this status."""
        for message in list(self._requests.values()):
            self.abort(message, status=status)

    def on_nack(self, number: int, *, status: Status) -> None:
        """End the message of this number, which the responder refused; the others of a batch are not affected."""
        message = self.by_number(number)
        if message is None or not message.packetized:
            return
        if message.refuse(number, status=status):
            self.abort(message, status=status)
        elif message.complete(self._peer, events=self._events):
            self.finish(message)

    def fail_unready(self) -> None:
        """End the sends that wait for credit and whose RNR retries are exhausted."""
        if self.needs_credit:
            for send in list(self._sends.front(len(self._sends))):
                if self.credit.retries_exhausted(send.rnr_count):
                    self.abort(send, status=Status.REMOTE_ERROR_RNR)

    def fail_dropped(self) -> bool:
        """End the started sends that were dropped for lack of memory too often; return whether there were any."""
        dropped = [
            message
            for message in self._requests.values()
            if message.opcode == _SEND
            and message.packetized
            and message.wr.length
            and self.credit.retries_exhausted(message.rnr_count)
        ]
        for message in dropped:
            self.abort(message, status=Status.REMOTE_ERROR_RNR)
        if dropped:
            self.credit.on_progress()  # they need no memory any more, and the others have their own retries
        return bool(dropped)

    def on_deregistered(self, is_withdrawn: Callable[[int], bool]) -> None:
        """End the requests whose registration of this end no longer exists."""
        by_key = self._by_key or {}
        using = [message for key, same in by_key.items() if is_withdrawn(key) for message in same.values()]
        for message in using:
            is_read = message.opcode == _READ
            self.abort(message, status=Status.LOCAL_ERROR_INVALID_LKEY if is_read else Status.REMOTE_ERROR_BAD_ADDRESS)

    # -- deadlines ----------------------------------------------------------------------------------------------

    def start_timers(self, *, deadline_at: float) -> Sequence[OutgoingMessage]:
        """Set the deadline of the requests posted since and still open; return them."""
        if self._untimed is None:
            return ()
        new = [message for message in self._untimed if not message.ended]
        self._untimed = None
        for message in new:
            message.deadline_at = deadline_at
        if self._timed is None:
            self._timed = deque()
        self._timed.extend(new)
        if len(self._timed) > 2 * self.count + MAX_ENDED:  # amortised: constant cost per request
            self._timed = deque([message for message in self._timed if not message.ended])
        return new

    @property
    def deadline_at(self) -> float:
        """When the next request is overdue; infinite if none is open."""
        timed = self._timed
        while timed and timed[0].ended:
            timed.popleft()
        if timed:
            return timed[0].deadline_at
        self._timed = None
        return math.inf

    def fail_overdue(self, *, now: float) -> None:
        """End the requests whose time is up; with REMOTE_ERROR_RNR if they only waited for the receiver's credit."""
        while self._timed is not None and now >= self.deadline_at:
            message = self._timed.popleft()
            waited = message.needs_credit and not message.packetized and self.needs_credit
            self.abort(message, status=Status.REMOTE_ERROR_RNR if waited else Status.LOCAL_ERROR_UNRESP_REMOTE)


def _blocks(batch: OutgoingMessage) -> range:
    """Return the blocks of message numbers that a batch has a part of."""
    return range(batch.number >> _BLOCK_BITS, (batch.number + batch.count - 1 >> _BLOCK_BITS) + 1)
