"""What the messages of a peer do here: sends, operations on registered memory, aborted messages.

    requester                                   responder
    SEND (payload)                      -->      delivers it when all of it has landed
    WRITE (key, offset, payload)        -->      checks each packet by itself, places its payload
    READ (key, offset, length)          -->      checks once
                                       <--      RESPONSE (number of the READ, payload), a message of its own

1. An endpoint of an application takes every send for which it has granted credit. Where the owner has `Destinations`
   (an emulated network card), each send is admitted before any packet of it is acknowledged; those of a batch together,
   or, if not all are taken, each by itself.
2. Each packet of a write carries the target of its own payload, and is checked by itself, before it is acknowledged, as
   in RFC 5041 (DDP). So any packet can be placed whatever is missing, and a deregistered key stops working in the
   middle of a message. What a refused write has placed before stays; nothing outside the bounds is ever written.
3. A refused packet is answered with NACK and not acknowledged. The NACK may be lost, since the packet is sent again
   until its sender receives one. A message stays refused until its sender turns it ABORTED, even if it could be taken
   by now: its sender has been told, and may send the same again as another message. A read that is refused is
   acknowledged and answered by a RESPONSE that is ABORTED.
4. The core never touches payload: a `TargetCopy` instructs its owner what to copy where. The copies are carried out
   before the events of the same batch are processed, so that what completes has landed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from srd.proto.config import MAX_MESSAGE_BYTES
from srd.proto.events import (
    Extent,
    MessageAborted,
    MessageReceived,
    MessagesReceived,
    TargetCopy,
    WriteReceived,
)
from srd.proto.peer_trace import PeerTrace
from srd.proto.recv.receiver import Receiver
from srd.proto.recv.shared import Shared
from srd.proto.send.queue import SendQueue
from srd.proto.send.uncredited import MAX_READS
from srd.proto.wire.data import ABORTED, IMMEDIATE, OPCODE_BITS, Opcode, ReceivedBurst, single_packet, takes_credit
from srd.proto.wire.status import Status, refusal_untrusted

MAX_NACKS: Final = 64
"""NACKs waiting to be sent to one peer; more are dropped, since what was refused is sent again."""


class Responder:
    """`handle` the received bursts of one peer; the `nacks` that result are still to be sent."""

    __slots__ = ("_peer", "_queue", "_receiver", "_shared", "_trace", "nacks")

    def __init__(
        self,
        peer: int,
        *,
        shared: Shared,
        receiver: Receiver,
        send_queue: SendQueue,
        trace: PeerTrace | None = None,
    ) -> None:
        self.nacks: dict[int, Status] | None = None  # refused messages whose NACK is still to be sent
        self._peer = peer
        self._shared = shared
        self._receiver = receiver
        self._queue = send_queue
        self._trace = trace

    def handle(self, burst: ReceivedBurst, *, now: float) -> list[Extent]:
        """Process a received burst; return the pieces of memory that are kept. One with undefined flags is dropped."""
        if not burst.flags & ~IMMEDIATE:
            return self._handle_send(burst, now=now)
        opcode = burst.flags & OPCODE_BITS
        if burst.flags & ~(OPCODE_BITS | IMMEDIATE | ABORTED):
            pass
        elif burst.flags & ABORTED:
            self._handle_aborted(burst, now=now)
        elif opcode == Opcode.WRITE:
            self._handle_write(burst, now=now)
        elif burst.flags == Opcode.READ:
            self._handle_read(burst, now=now)
        elif burst.flags == Opcode.RESPONSE:
            self._handle_response(burst, now=now)
        return []

    def _refuse(self, burst: ReceivedBurst, *, status: Status, now: float) -> None:
        """Refuse a received burst, unless it was accepted before."""
        if self._receiver.refuse(burst, now=now):
            self._send_nack(burst.message, status=status)

    def _send_nack(self, message: int, *, status: Status) -> None:
        if self.nacks is None:
            self.nacks = {}
        if len(self.nacks) < MAX_NACKS:
            self.nacks[message] = status

    def discard(self, messages: Iterable[int], *, now: float) -> None:
        """Discard incomplete messages of the peer: what they hold is freed, and the peer gets an RNR refusal."""
        for message in messages:
            released, discarded = self._receiver.discard(message)
            opcode = discarded.flags & OPCODE_BITS
            self._shared.events.append(MessageAborted(self._peer, released, discarded.key, discarded.length, opcode))
            self._send_nack(message, status=Status.REMOTE_ERROR_RNR)
            if self._trace is not None:
                self._trace.message_discarded(message, opcode=opcode, released=released, now=now)

    def _handle_aborted(self, burst: ReceivedBurst, *, now: float) -> None:
        opcode = burst.flags & OPCODE_BITS
        is_taken = (
            self._shared.destinations is not None
            and takes_credit(burst.flags)
            and self._receiver.is_incomplete(burst.message)
        )
        released = self._receiver.on_abort(burst, now=now)
        if released is None:
            return
        if self._trace is not None:
            self._trace.message_aborted(burst, released=released, now=now)
        if released or is_taken:
            self._shared.events.append(MessageAborted(self._peer, released, burst.key, burst.length, opcode))
        if opcode == Opcode.RESPONSE and (read := self._queue.read(burst.key)) is not None:
            self._queue.abort(read, status=refusal_untrusted(burst.immediate))

    # -- sends --------------------------------------------------------------------------------------------------

    def _handle_send(self, burst: ReceivedBurst, *, now: float) -> list[Extent]:
        if not burst.batch:
            return self._handle_message(burst, now=now)
        kept: list[Extent] = []
        if not self._takes_batch(burst):
            for index in range(burst.count):
                kept += self._handle_message(single_packet(burst, index), now=now)
            return kept
        immediate = burst.immediate if burst.flags & IMMEDIATE else None
        for first, count in self._receiver.accept_batch(burst, now=now):
            message, at = burst.message + first & 0xFFFFFFFF, burst.payload_offset + first * burst.length
            batch = MessagesReceived(self._peer, message, count, burst.length, immediate, at, burst.key)
            self._shared.events.append(batch)
            kept.append(batch.extent)
        return kept

    def _takes_batch(self, burst: ReceivedBurst) -> bool:
        """Whether all new messages of a batch are taken; if not, none is."""
        if burst.length > self._shared.config.max_message_bytes:
            return False
        if (destinations := self._shared.destinations) is None:
            return True
        if self._receiver.has_refused or burst.length > self._receiver.segment_bytes:
            return False
        count = self._receiver.unseen(burst).bit_count()
        if count < 2:  # duplicates only; one is admitted by itself, so that a refusal is remembered
            return not count
        return destinations.admit(burst.key, peer=self._peer, length=burst.length, count=count) is None

    def _handle_message(self, burst: ReceivedBurst, *, now: float) -> list[Extent]:
        receiver, destinations = self._receiver, self._shared.destinations
        status = receiver.refusal(burst.message)
        if burst.length > self._shared.config.max_message_bytes:
            status = Status.REMOTE_ERROR_BAD_LENGTH
        elif status is None and destinations is not None and receiver.begins(burst):
            if not receiver.has_consistent_layout(burst, offset=burst.offset):
                return []  # not acknowledged, as all that breaks the protocol
            status = destinations.admit(burst.key, peer=self._peer, length=burst.length, count=1)
            if status is not None:
                receiver.refuse_message(burst, status=status)
        if status is not None:
            self._refuse(burst, status=status, now=now)
            return []
        kept, message = receiver.accept(burst, now=now)
        if message is not None:
            extents = tuple(message.extents)
            self._shared.events.append(
                MessageReceived(self._peer, burst.message, message.length, message.immediate_value, extents, burst.key)
            )
        return kept

    # -- registered memory --------------------------------------------------------------------------------------

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
            self._refuse(burst, status=refused, now=now)
            return
        target = None
        if self._shared.memory is not None and burst.length <= MAX_MESSAGE_BYTES:
            target = self._shared.memory.remote_writable(
                burst.key, peer=self._peer, offset=burst.offset, length=burst.payload_bytes
            )
        if target is None:
            self._refuse(burst, status=self._refusal(burst.key), now=now)
            return
        if self._shared.destinations is not None and burst.flags & IMMEDIATE and self._receiver.begins(burst):
            status = self._shared.destinations.admit_write(burst.key, peer=self._peer)
            if status is not None:
                self._receiver.refuse_message(burst, status=status)
                self._refuse(burst, status=status, now=now)
                return
        if self._place(burst, target=target, now=now):
            if self._trace is not None:
                self._trace.write_received(burst, now=now)
            if burst.flags & IMMEDIATE:
                self._shared.events.append(WriteReceived(self._peer, burst.length, burst.immediate, burst.key))

    def _refusal(self, key: int) -> Status:
        """Return why a range is not allowed."""
        return (
            Status.REMOTE_ERROR_BAD_ADDRESS
            if self._shared.destinations is None
            else self._shared.destinations.refusal(key, peer=self._peer)
        )

    def _handle_read(self, burst: ReceivedBurst, *, now: float) -> None:
        if burst.payload_bytes or burst.count > 1 or self._queue.responses >= 2 * MAX_READS:
            return  # not acknowledged: it is sent again
        if not self._receiver.admit(burst, now=now):
            return
        payload_offset = None
        if self._shared.memory is not None and burst.length <= MAX_MESSAGE_BYTES:
            payload_offset = self._shared.memory.remote_readable(
                burst.key, peer=self._peer, offset=burst.offset, length=burst.length
            )
        self._queue.respond(
            burst.message,
            payload_offset=payload_offset,
            length=burst.length,
            key=burst.key,
            flow=0 if self._shared.destinations is None else self._shared.destinations.flow(burst.key),
            refusal=self._refusal(burst.key) if payload_offset is None else Status.OK,
        )

    def _handle_response(self, burst: ReceivedBurst, *, now: float) -> None:
        if not self._receiver.has_consistent_layout(burst, offset=burst.offset):
            return
        read = self._queue.read(burst.key)
        if read is None or burst.length != read.wr.length:
            self._refuse(burst, status=Status.REMOTE_ERROR_ABORT, now=now)
            return
        target = None
        if self._shared.memory is not None:
            offset = read.wr.local_offset + burst.offset
            target = self._shared.memory.local_writable(read.wr.local_key, offset=offset, length=burst.payload_bytes)
        if target is None:
            self._queue.abort(read, status=Status.LOCAL_ERROR_INVALID_LKEY)
            self._refuse(burst, status=Status.REMOTE_ERROR_ABORT, now=now)
        elif self._place(burst, target=target, now=now):
            self._queue.finish(read)
            read.complete(self._peer, events=self._shared.events)

    def _place(self, burst: ReceivedBurst, *, target: int, now: float) -> bool:
        """Accept a burst and have its new parts copied to `target`; return whether its message is now complete."""
        receiver, copies = self._receiver, self._shared.copies
        parts, message = receiver.land(burst, now=now)
        if message is None:
            return False
        if burst.flags & OPCODE_BITS == Opcode.WRITE:
            receiver.written_bytes += sum([part.length for part in parts])
        elif not message.cover(parts, segment_bytes=receiver.segment_bytes):
            receiver.protocol_error = f"answer {burst.message} to a read has packets that overlap"
            return False
        copies += [TargetCopy(target + part.offset - burst.offset, part.region_offset, part.length) for part in parts]
        if message.landed_bytes < message.length or receiver.protocol_error:
            return False
        receiver.finish(burst.message, now=now)
        return True
