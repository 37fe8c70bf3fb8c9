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
from srd.proto.events import Completion, Event, Follows, Frag, MessageVoided, Placement, WriteReceived
from srd.proto.inbound import new_parts
from srd.proto.memory import Memory
from srd.proto.outbox import Outbox
from srd.proto.peer_trace import PeerTrace
from srd.proto.receive import Receiver
from srd.proto.sent import Outbound
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
        self.tell_refused(run.message, status=status)

    def tell_refused(self, message: int, *, status: Status) -> None:
        """Have the peer told that a message of its is refused."""
        if len(self.nacks) < MAX_NACKS:
            self.nacks[message] = status

    def give_up(self, message: int) -> tuple[Frag, ...]:
        """Give up an incomplete send of the peer's; return its pieces."""
        orphans = self._receiver.give_up(message)
        self.events.append(MessageVoided(self._peer, orphans))
        self.tell_refused(message, status=Status.REMOTE_ERROR_RNR)
        return orphans

    def _is_cut_right(self, run: Run) -> bool:
        """Whether a run of a write is as it must be cut. With an immediate it does not say where the write begins."""
        if not run.flags & IMMEDIATE:
            return self._receiver.is_cut_right(run, offset=run.offset - run.immediate & 0xFFFFFFFF)
        last = run.payload_bytes == run.length or run.payload_bytes % self._receiver.segment_bytes
        offset = run.length - run.payload_bytes if last else 0
        return offset >= 0 and self._receiver.is_cut_right(run, offset=offset)

    def _handle_write(self, run: Run, *, now: float) -> None:
        if not self._is_cut_right(run):
            return  # not acknowledged, as nothing that breaks the rules
        place = None
        if self._memory is not None and run.length <= MAX_MESSAGE_BYTES:
            place = self._memory.remote_writable(run.key, offset=run.offset, length=run.payload_bytes)
        if place is None:
            self.refuse(run, status=Status.REMOTE_ERROR_BAD_ADDRESS, now=now)
        elif self._place(run, place=place, follows=self._follows_write(run, place), now=now):
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
        if not self._receiver.is_cut_right(run, offset=run.offset):
            return
        read = self._outbox.read(run.key)
        if read is None or run.length != read.length:
            self.refuse(run, status=Status.REMOTE_ERROR_ABORT, now=now)
            return
        place = None
        if self._memory is not None:
            offset = read.local_offset + run.offset
            place = self._memory.local_writable(read.local_key, offset=offset, length=run.payload_bytes)
        if place is None:
            self._outbox.give_up(read, status=Status.LOCAL_ERROR_INVALID_LKEY)
            self.refuse(run, status=Status.REMOTE_ERROR_ABORT, now=now)
        elif self._place(run, place=place, follows=self._follows_response(run, place, read), now=now):
            self._receiver.finish(run.message, now=now)
            self._outbox.end(read)
            if read.request is not None:
                self.events.append(Completion(self._peer, read.request, Status.OK))

    def _follows_write(self, run: Run, place: int) -> Follows | None:
        """Return what follows on a part of a write. Without an immediate its headers say where it begins."""
        end = run.offset + run.payload_bytes
        left_bytes = run.length - run.payload_bytes - (run.offset - run.immediate & 0xFFFFFFFF)
        if run.flags & IMMEDIATE or left_bytes <= 0 or self._memory is None:
            return None
        if self._memory.remote_writable(run.key, offset=end, length=left_bytes) is None:
            return None
        return Follows(run.context, run.message, Opcode.WRITE, end, place + run.payload_bytes, left_bytes)

    def _follows_response(self, run: Run, place: int, read: Outbound) -> Follows | None:
        """Return what follows on a part of an answer."""
        end = run.offset + run.payload_bytes
        if (left_bytes := run.length - end) <= 0 or self._memory is None:
            return None
        offset = read.local_offset + end
        if self._memory.local_writable(read.local_key, offset=offset, length=left_bytes) is None:
            return None
        return Follows(run.context, run.message, Opcode.RESPONSE, end, place + run.payload_bytes, left_bytes)

    def _place(self, run: Run, *, place: int, follows: Follows | None, now: float) -> bool:
        """Take a run and have its new parts placed; return whether its message is whole now."""
        late = self._receiver.is_void(run.message)
        new = self._receiver.admit(run, now=now)
        if not new or late:
            return False
        parts = new_parts(run, new=new)
        inbound = self._receiver.land(run, landed_bytes=sum(frag.length for frag in parts), now=now)
        end = run.offset + run.payload_bytes
        inbound.high = max(inbound.high, end)
        if follows is not None:
            follows = follows.after(inbound.high - end)
        self._placements += [
            Placement(place + part.offset - run.offset, part.region_offset, part.length, follows) for part in parts
        ]
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
