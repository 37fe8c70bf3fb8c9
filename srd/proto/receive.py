"""The receiving half of a peer: what has arrived, what goes into the next ack, and messages as they become whole.

1. A PSN is taken once; anything that comes again is counted as a duplicate of its path and its memory is not kept.
2. A message is delivered when all its bytes have landed, whatever is missing before it.
3. Everything received is in every ack (cumulative point and bitmap), so that acks may be lost. Acks
   return over the paths in turn, so that one dead return path hides nothing.
4. Credit is counted in message bytes from the beginning of the peer's life and only ever grows: the window plus what
   the application has released.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from srd.proto.config import MAX_PATHS, ProtocolConfig
from srd.proto.control import Ack, PathReport, bitmap_room_bytes, max_reports
from srd.proto.events import Frag
from srd.proto.seqset import SequenceSet, mask, ranges
from srd.proto.wire import Address, Run, expand

ACK_EVERY_PACKETS = 4
"""Packets after which an ack is due at once. An ack costs both ends and the fabric more than a data packet does: it is
small but alone."""
ACK_DELAY_S = 0.0005
"""Longest that an ack waits for company: a quarter of a round trip of 2 ms. The sender is told (`held_us`)."""
REPORT_REPEATS = 1
"""Acks that carry the report of a path after it was heard. A path in use is heard again soon; a second time would
double the work that an ack makes at both ends."""


@dataclass(slots=True)
class Inbound:
    """A message of which some has landed."""

    length: int
    immediate: int
    landed_bytes: int = 0
    frags: list[Frag] = field(default_factory=list)

    def tile(self) -> bool:
        """Sort the frags; return whether they are the message, no more and no less."""
        self.frags.sort(key=lambda frag: frag.offset)
        at = 0
        for frag in self.frags:
            if frag.offset != at:
                return False
            at += frag.length
        return at == self.length


@dataclass(slots=True)
class HeardPath:
    """What was heard of one of the peer's paths."""

    address: Address
    sequence: int = -1
    sent_us: int = 0
    received_at: float = 0.0
    packets: int = 0
    duplicates: int = 0
    reports_due: int = 0

    def report(self, path: int, *, now: float) -> PathReport:
        """Return the report of this path, as of now."""
        return PathReport(
            path=path,
            path_sequence=self.sequence & 0xFFFFFFFF,
            sent_us=self.sent_us,
            held_us=min(max(int((now - self.received_at) * 1e6), 0), 0xFFFFFFFF),
            packets=self.packets & 0xFFFFFFFF,
            duplicates=self.duplicates & 0xFFFF,
        )


class Receiver:
    """`take` what arrives, `ack` when `ack_at` says so, `release` what the application is done with."""

    def __init__(self, config: ProtocolConfig) -> None:
        self.ack_at: float | None = None  # when the next ack is due; None: nothing to acknowledge
        self.contradiction = ""  # what the peer said that cannot be; nothing more of it can be believed
        self.packets = 0
        self.duplicates = 0
        self.landed_bytes = 0  # new payload, of complete and incomplete messages
        self.longest_gap_s = 0.0  # longest time between two landings since `start_gap`
        self._landed_at = math.inf  # nothing yet
        self._config = config
        self._window = SequenceSet()
        self._inbound: dict[int, Inbound] = {}
        self._heard: dict[int, HeardPath] = {}
        self._released_bytes = 0
        self._granted_bytes = config.receive_window_bytes  # as last told to the peer
        self._acks = 0
        self._unacked_packets = 0

    @property
    def incomplete(self) -> bool:
        """Whether part of a message has landed and not all of it."""
        return bool(self._inbound)

    @property
    def credit_bytes(self) -> int:
        """What the peer may send in all."""
        return self._config.receive_window_bytes + self._released_bytes

    def start_gap(self) -> None:
        """Begin to measure the longest gap anew."""
        self.longest_gap_s, self._landed_at = 0.0, math.inf

    def take(self, run: Run, *, now: float) -> tuple[list[Frag], Inbound | None]:
        """Take a run; return the pieces to keep, and the message if it is whole now."""
        if run.psn + run.count > self._window.base + self._config.window_packets:
            return [], None  # beyond any window we agreed to; the sender will come again
        if run.path >= MAX_PATHS:
            return [], None
        if run.offset + run.payload_bytes > run.length or run.length > self._config.max_message_bytes:
            return [], None
        new = self._window.insert(run.psn, count=run.count)
        self._hear(run, duplicates=run.count - new.bit_count())
        if not new:
            self.ack_at = now  # the ack of the first copy may have been lost
            return [], None
        inbound = self._inbound.get(run.message)
        if inbound is None:
            inbound = self._inbound[run.message] = Inbound(run.length, run.immediate)
        self._owe_ack(run.count, now=now)
        if new == mask(run.count):  # as nearly always
            kept = [Frag(run.offset, run.payload_offset, run.payload_bytes)]
            landed_bytes = run.payload_bytes
        else:
            kept = self._new_parts(run, new=new)
            landed_bytes = sum(frag.length for frag in kept)
        inbound.frags += kept
        inbound.landed_bytes += landed_bytes
        if run.length != inbound.length:
            self.contradiction = f"message {run.message} is said to have {run.length} and {inbound.length} bytes"
        self.landed_bytes += landed_bytes
        self.longest_gap_s = max(self.longest_gap_s, now - self._landed_at)
        self._landed_at = now
        if inbound.landed_bytes < inbound.length:
            return kept, None
        if not inbound.tile():
            self.contradiction = f"message {run.message} has packets that overlap"
            return kept, None
        del self._inbound[run.message]
        self.ack_at = now  # its sender waits for nothing else
        return kept, inbound

    @staticmethod
    def _new_parts(run: Run, *, new: int) -> list[Frag]:
        """Return the new parts of a run as pieces of memory."""
        frags = []
        for first, count in ranges(new):
            start = first * run.segment_bytes
            end = min((first + count) * run.segment_bytes, run.payload_bytes)
            frags.append(Frag(run.offset + start, run.payload_offset + start, end - start))
        return frags

    def _hear(self, run: Run, *, duplicates: int) -> None:
        last_sequence = run.path_sequence + run.count - 1
        heard = self.hear(
            run.path,
            path_sequence=last_sequence,
            sent_us=run.sent_us,
            address=run.address,
            received_at=run.received_at,
        )
        heard.packets += run.count
        heard.duplicates += duplicates
        self.packets += run.count
        self.duplicates += duplicates

    def hear(self, path: int, *, path_sequence: int, sent_us: int, address: Address, received_at: float) -> HeardPath:
        """Note that a packet (data or probe) came over a path."""
        heard = self._heard.get(path)
        if heard is None:
            heard = self._heard[path] = HeardPath(address, sequence=path_sequence - 1)
        sequence = expand(path_sequence & 0xFFFFFFFF, near=max(heard.sequence, 0))
        if sequence > heard.sequence:
            heard.sequence, heard.sent_us, heard.received_at = sequence, sent_us, received_at
            heard.address = address
        heard.reports_due = REPORT_REPEATS
        return heard

    def _owe_ack(self, packets: int, *, now: float) -> None:
        self._unacked_packets += packets
        if self._unacked_packets >= ACK_EVERY_PACKETS:
            self.ack_at = now
        elif self.ack_at is None:
            self.ack_at = now + ACK_DELAY_S

    def ack(self, *, context: int, now: float, room_bytes: int) -> tuple[Ack, Address] | None:
        """Return the ack that is due, and the address to send it to; None if no path was ever heard.

        It has at most `room_bytes`: what there is no room for is said in the next one (reports), or told by the
        cumulative point in the end (the bitmap's far end).
        """
        self.ack_at = None
        self._unacked_packets = 0
        if not self._heard:
            return None
        due = [(path, heard) for path, heard in self._heard.items() if heard.reports_due]
        if len(due) > (most := max_reports(room_bytes)):
            due = sorted(due, key=lambda item: -item[1].reports_due)[:most]
            self.ack_at = now + ACK_DELAY_S
        reports = tuple(heard.report(path, now=now) for path, heard in due)
        for _, heard in due:
            heard.reports_due -= 1
        candidates = due or list(self._heard.items())
        self._acks += 1
        address = candidates[self._acks % len(candidates)][1].address
        self._granted_bytes = self.credit_bytes
        bitmap = self._window.bits & mask(8 * bitmap_room_bytes(room_bytes, reports=len(reports)))
        return Ack(context, self._window.base, bitmap, self.credit_bytes, reports), address

    def release(self, size_bytes: int, *, now: float) -> None:
        """Give the credit of `size_bytes` of delivered messages back; told to the peer once it is worth a packet."""
        self._released_bytes += size_bytes
        if self.credit_bytes - self._granted_bytes >= self._config.receive_window_bytes // 8:
            self.ack_at = now

    def abandon(self) -> tuple[Frag, ...]:
        """Forget all incomplete messages; return their pieces."""
        orphans = tuple(frag for inbound in self._inbound.values() for frag in inbound.frags)
        self._inbound.clear()
        return orphans
