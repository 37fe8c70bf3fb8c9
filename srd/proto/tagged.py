"""Operations on registered memory, and messages that were given up: every data packet but a send's.

    requester                                   responder
    WRITE (key, offset, payload)        -->      checks each packet by itself, places its payload
    READ (key, offset, length)          -->      checks once
                                       <--      RESPONSE (number of the READ, payload), a message of its own

1. A packet of a write names the place of its own payload, and is checked alone, before it is acknowledged, as RFC 5041
   (DDP) has it: so any packet can be placed whatever is missing, and a key that was withdrawn stops working in the
   middle of a message. What a refused write has placed before stays; nothing beyond the bounds is ever touched.
2. What is refused is answered with NACK and not acknowledged. The answer may be lost, as what was refused is sent again
   until its sender knows. A read that is refused is acknowledged and answered by a RESPONSE that is VOID.
3. The core touches no payload: it tells its owner by a `Placement` what to copy where. Placements are carried out
   before the events of the same batch are looked at, so what completes has landed.
"""

from __future__ import annotations

from srd.proto.backlog import MAX_READS
from srd.proto.config import MAX_MESSAGE_BYTES
from srd.proto.events import Completion, Event, MessageVoided, Placement, WriteReceived
from srd.proto.inbound import new_parts
from srd.proto.memory import Memory
from srd.proto.outbox import Outbox
from srd.proto.peer_trace import PeerTrace
from srd.proto.receive import Receiver
from srd.proto.status import Status, refusal_untrusted
from srd.proto.wire import IMMEDIATE, OPCODE_BITS, VOID, Opcode, Run

MAX_NACKS = 64
"""Refusals waiting to be sent to one peer; more are dropped, as what was refused comes again."""


class Tagged:
    """The registered memory of this end, as one peer may use it."""

    def __init__(
        self,
        peer: int,
        *,
        receiver: Receiver,
        outbox: Outbox,
        memory: Memory | None,
        placements: list[Placement],
        trace: PeerTrace | None = None,
    ) -> None:
        self.nacks: dict[int, Status] = {}  # messages that were refused: to be told
        self.events: list[Event] = []
        self._peer = peer
        self._receiver = receiver
        self._outbox = outbox
        self._memory = memory
        self._placements = placements
        self._trace = trace

    def handle(self, run: Run, *, now: float) -> None:
        """Take a run of anything but a send; one with flags that do not exist is dropped."""
        if run.flags & ~(OPCODE_BITS | IMMEDIATE | VOID):
            return
        if run.flags & VOID:
            self._handle_void(run, now=now)
        elif run.flags & OPCODE_BITS == Opcode.WRITE:
            self._handle_write(run, now=now)
        elif run.flags == Opcode.READ:
            self._handle_read(run, now=now)
        elif run.flags == Opcode.RESPONSE:
            self._handle_response(run, now=now)

    def refuse(self, run: Run, *, status: Status, now: float) -> None:
        """Say no to a run, unless it had been taken before."""
        if self._receiver.knows(run):
            self._receiver.admit(run, now=now)
            return
        self._receiver.refuse(run, now=now)
        if len(self.nacks) < MAX_NACKS:
            self.nacks[run.message] = status

    def _handle_write(self, run: Run, *, now: float) -> None:
        place = None
        if self._memory is not None and run.payload_bytes <= run.length <= MAX_MESSAGE_BYTES:
            place = self._memory.remote_writable(run.key, offset=run.offset, length=run.payload_bytes)
        if place is None:
            self.refuse(run, status=Status.REMOTE_ERROR_BAD_ADDRESS, now=now)
        elif self._place(run, place=place, now=now):
            self._receiver.finish(run.message, now=now)
            if self._trace is not None:
                self._trace.write_received(run, now=now)
            if run.flags & IMMEDIATE:
                self.events.append(WriteReceived(self._peer, run.length, run.immediate))

    def _handle_read(self, run: Run, *, now: float) -> None:
        if run.payload_bytes or run.count > 1 or self._outbox.responses >= 2 * MAX_READS:
            return  # not acknowledged: it comes again
        if not self._receiver.admit(run, now=now):
            return
        place = None
        if self._memory is not None and run.length <= MAX_MESSAGE_BYTES:
            place = self._memory.remote_readable(run.key, offset=run.offset, length=run.length)
        self._outbox.respond(run.message, payload_offset=place, length=run.length, key=run.key)

    def _handle_response(self, run: Run, *, now: float) -> None:
        read = self._outbox.read(run.key)
        if read is None or run.length != read.length or run.offset + run.payload_bytes > run.length:
            self.refuse(run, status=Status.REMOTE_ERROR_ABORT, now=now)
            return
        place = None
        if self._memory is not None:
            offset = read.local_offset + run.offset
            place = self._memory.local_writable(read.local_key, offset=offset, length=run.payload_bytes)
        if place is None:
            self._outbox.give_up(read, status=Status.LOCAL_ERROR_INVALID_LKEY)
            self.refuse(run, status=Status.REMOTE_ERROR_ABORT, now=now)
        elif self._place(run, place=place, now=now):
            self._receiver.finish(run.message, now=now)
            self._outbox.end(read)
            if read.request is not None:
                self.events.append(Completion(self._peer, read.request, Status.OK))

    def _place(self, run: Run, *, place: int, now: float) -> bool:
        """Take a run and have its new parts placed; return whether its message is whole now."""
        new = self._receiver.admit(run, now=now)
        if not new or self._receiver.is_void(run.message):
            return False
        parts = new_parts(run, new=new)
        self._placements += [Placement(place + f.offset - run.offset, f.region_offset, f.length) for f in parts]
        inbound = self._receiver.land(run, landed_bytes=sum(frag.length for frag in parts), now=now)
        return inbound.landed_bytes >= inbound.length and not self._receiver.contradiction

    def _handle_void(self, run: Run, *, now: float) -> None:
        orphans = self._receiver.void(run, now=now)
        if orphans is None:
            return
        if self._trace is not None:
            self._trace.message_voided(run, orphans=orphans, now=now)
        if orphans:
            self.events.append(MessageVoided(self._peer, orphans))
        if run.flags & OPCODE_BITS == Opcode.RESPONSE and (read := self._outbox.read(run.key)) is not None:
            self._outbox.give_up(read, status=refusal_untrusted(run.immediate))
