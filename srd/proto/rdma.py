"""Operations on registered memory, and aborted messages: every data packet but a send's.

    requester                                   responder
    WRITE (key, offset, payload)        -->      checks each packet by itself, places its payload
    READ (key, offset, length)          -->      checks once
                                       <--      RESPONSE (number of the READ, payload), a message of its own

1. Each packet of a write carries the target of its own payload, and is checked by itself, before it is acknowledged, as
   in RFC 5041 (DDP). So any packet can be placed whatever is missing, and a deregistered key stops working in the
   middle of a message. What a refused write has placed before stays; nothing outside the bounds is ever written.
2. A refused packet is answered with NACK and not acknowledged. The NACK may be lost, since the packet is sent again
   until its sender receives one. A read that is refused is acknowledged and answered by a RESPONSE that is ABORTED.
3. The core never touches payload: a `TargetCopy` instructs its owner what to copy where. The copies are carried out
   before the events of the same batch are processed, so that what completes has landed.
"""

from __future__ import annotations

from typing import Final

from srd.proto.config import MAX_MESSAGE_BYTES
from srd.proto.events import Completion, EventQueue, Extent, MessageAborted, TargetCopy, WriteReceived
from srd.proto.memory import Inbox, Memory
from srd.proto.peer_trace import PeerTrace
from srd.proto.recv.reassembly import new_parts
from srd.proto.recv.receiver import Receiver
from srd.proto.send.queue import SendQueue
from srd.proto.send.scheduler import MAX_READS
from srd.proto.wire.data import ABORTED, IMMEDIATE, OPCODE_BITS, Opcode, ReceivedBurst, takes_credit
from srd.proto.wire.status import Status, refusal_untrusted

MAX_NACKS: Final = 64
"""NACKs waiting to be sent to one peer; more are dropped, since what was refused is sent again."""


class Rdma:
    """The registered memory of this end, as one peer may use it."""

    def __init__(
        self,
        peer: int,
        *,
        receiver: Receiver,
        send_queue: SendQueue,
        memory: Memory | None,
        inbox: Inbox | None,
        copies: list[TargetCopy],
        events: EventQueue,
        trace: PeerTrace | None = None,
    ) -> None:
        self.nacks: dict[int, Status] = {}  # refused messages whose NACK is still to be sent
        self._peer = peer
        self._receiver = receiver
        self._queue = send_queue
        self._memory = memory
        self._inbox = inbox
        self._copies = copies
        self._events = events
        self._trace = trace

    def handle(self, burst: ReceivedBurst, *, now: float) -> None:
        """Process a received burst of anything but a send; one with undefined flags is dropped."""
        if burst.flags & ~(OPCODE_BITS | IMMEDIATE | ABORTED):
            return
        if burst.flags & ABORTED:
            self._handle_aborted(burst, now=now)
        elif burst.flags & OPCODE_BITS == Opcode.WRITE:
            self._handle_write(burst, now=now)
        elif burst.flags == Opcode.READ:
            self._handle_read(burst, now=now)
        elif burst.flags == Opcode.RESPONSE:
            self._handle_response(burst, now=now)

    def refuse(self, burst: ReceivedBurst, *, status: Status, now: float) -> None:
        """Refuse a received burst, unless it was accepted before."""
        if self._receiver.is_tracking(burst):
            self._receiver.admit(burst, now=now)
            return
        self._receiver.refuse(burst, now=now)
        self.send_nack(burst.message, status=status)

    def send_nack(self, message: int, *, status: Status) -> None:
        """Queue a NACK for a message of the peer."""
        if len(self.nacks) < MAX_NACKS:
            self.nacks[message] = status

    def on_discarded(self, message: int) -> tuple[Extent, ...]:
        """Discard an incomplete send of the peer; return its pieces."""
        released, discarded = self._receiver.discard(message)
        self._events.append(MessageAborted(self._peer, released, discarded.key, discarded.length))
        self.send_nack(message, status=Status.REMOTE_ERROR_RNR)
        return released

    def _has_consistent_layout(self, burst: ReceivedBurst) -> bool:
        """Whether a burst of a write has a valid layout. With an immediate, where the write begins is not known."""
        if not burst.flags & IMMEDIATE:
            return self._receiver.has_consistent_layout(burst, offset=burst.offset - burst.immediate & 0xFFFFFFFF)
        last = burst.payload_bytes == burst.length or burst.payload_bytes % self._receiver.segment_bytes
        offset = burst.length - burst.payload_bytes if last else 0
        return offset >= 0 and self._receiver.has_consistent_layout(burst, offset=offset)

    def _handle_write(self, burst: ReceivedBurst, *, now: float) -> None:
        if not self._has_consistent_layout(burst):
            return  # not acknowledged, as all that breaks the protocol
        if (refused := self._receiver.refusal(burst.message)) is not None:
            self.refuse(burst, status=refused, now=now)
            return
        target = None
        if self._memory is not None and burst.length <= MAX_MESSAGE_BYTES:
            target = self._memory.remote_writable(
                burst.key, peer=self._peer, offset=burst.offset, length=burst.payload_bytes
            )
        if target is None:
            self.refuse(burst, status=self._refusal(burst.key), now=now)
        elif (status := self._admit_write(burst)) is not None:
            self._receiver.refuse_message(burst, status=status)
            self.refuse(burst, status=status, now=now)
        elif self._queue_copies(burst, target=target, now=now):
            self._receiver.finish(burst.message, now=now)
            if self._trace is not None:
                self._trace.write_received(burst, now=now)
            if burst.flags & IMMEDIATE:
                self._events.append(WriteReceived(self._peer, burst.length, burst.immediate, burst.key))

    def _takes(self, burst: ReceivedBurst) -> bool:
        """Whether the inbox takes the message of a burst, or the notification of it."""
        return self._inbox is not None and takes_credit(burst.flags)

    def _refusal(self, key: int) -> Status:
        """Return why a range is not allowed."""
        return Status.REMOTE_ERROR_BAD_ADDRESS if self._inbox is None else self._inbox.refusal(key, peer=self._peer)

    def _admit_write(self, burst: ReceivedBurst) -> Status | None:
        """Have the inbox take the notification of a write that begins; return why it does not."""
        if self._inbox is None or not burst.flags & IMMEDIATE or self._receiver.is_incomplete(burst.message):
            return None
        if self._receiver.is_aborted(burst.message) or not self._receiver.unseen(burst):
            return None
        return self._inbox.admit_write(burst.key, peer=self._peer)

    def _handle_read(self, burst: ReceivedBurst, *, now: float) -> None:
        if burst.payload_bytes or burst.count > 1 or self._queue.responses >= 2 * MAX_READS:
            return  # not acknowledged: it is sent again
        if not self._receiver.admit(burst, now=now):
            return
        payload_offset = None
        if self._memory is not None and burst.length <= MAX_MESSAGE_BYTES:
            payload_offset = self._memory.remote_readable(
                burst.key, peer=self._peer, offset=burst.offset, length=burst.length
            )
        self._queue.respond(
            burst.message,
            payload_offset=payload_offset,
            length=burst.length,
            key=burst.key,
            flow=0 if self._inbox is None else self._inbox.flow(burst.key),
            refusal=self._refusal(burst.key) if payload_offset is None else Status.OK,
        )

    def _handle_response(self, burst: ReceivedBurst, *, now: float) -> None:
        if not self._receiver.has_consistent_layout(burst, offset=burst.offset):
            return
        read = self._queue.read(burst.key)
        if read is None or burst.length != read.length:
            self.refuse(burst, status=Status.REMOTE_ERROR_ABORT, now=now)
            return
        target = None
        if self._memory is not None:
            offset = read.local_offset + burst.offset
            target = self._memory.local_writable(read.local_key, offset=offset, length=burst.payload_bytes)
        if target is None:
            self._queue.abort(read, status=Status.LOCAL_ERROR_INVALID_LKEY)
            self.refuse(burst, status=Status.REMOTE_ERROR_ABORT, now=now)
        elif self._queue_copies(burst, target=target, now=now):
            self._receiver.finish(burst.message, now=now)
            self._queue.finish(read)
            if read.request is not None:
                self._events.append(Completion(self._peer, read.request, Status.OK))

    def _queue_copies(self, burst: ReceivedBurst, *, target: int, now: float) -> bool:
        """Accept a burst and queue the copies of its new parts; return whether its message is now complete."""
        late = self._receiver.is_aborted(burst.message)
        new = self._receiver.admit(burst, now=now)
        if not new or late:
            return False
        parts = new_parts(burst, new=new)
        landed_bytes = sum(extent.length for extent in parts)
        if burst.flags & OPCODE_BITS == Opcode.WRITE:
            self._receiver.written_bytes += landed_bytes
        reassembly = self._receiver.on_landed(burst, landed_bytes=landed_bytes, now=now)
        first = burst.offset // self._receiver.segment_bytes
        if burst.flags == Opcode.RESPONSE and not reassembly.cover(first, new=new):
            self._receiver.protocol_error = f"answer {burst.message} to a read has packets that overlap"
            return False
        self._copies += [
            TargetCopy(target + part.offset - burst.offset, part.region_offset, part.length) for part in parts
        ]
        return reassembly.landed_bytes >= reassembly.length and not self._receiver.protocol_error

    def _handle_aborted(self, burst: ReceivedBurst, *, now: float) -> None:
        was_taken = self._takes(burst) and self._receiver.is_incomplete(burst.message)
        released = self._receiver.on_abort(burst, now=now)
        if released is None:
            return
        if self._trace is not None:
            self._trace.message_aborted(burst, released=released, now=now)
        if released or was_taken:
            self._events.append(
                MessageAborted(self._peer, released, burst.key, burst.length, burst.flags & OPCODE_BITS)
            )
        if burst.flags & OPCODE_BITS == Opcode.RESPONSE and (read := self._queue.read(burst.key)) is not None:
            self._queue.abort(read, status=refusal_untrusted(burst.immediate))
