"""The receiving half of a peer: what has arrived, what goes into the next ack, and messages as they become complete.

1. A PSN is accepted once. A packet that arrives again is counted as a duplicate of its path, and its memory is not
   kept.
2. A message is delivered when all its bytes have landed, whatever is missing before it.
3. Every ack reports everything received (cumulative point and bitmap), so that acks may be lost. `recv.ack_path`
   chooses the ack path.
4. Credit is counted in message bytes, and in messages, from the opening of the peer and only ever grows: the
   window plus what the application has released. The credit of an aborted message is released as soon as the abort is
   known. A peer that begins more than it was granted breaks the protocol, and ends: no conforming sender does so,
   whatever the network does.
5. A message that its sender aborted is remembered until all its PSNs were received, so that no late packet starts it
   again.
6. A message that does not become complete in time is discarded here (`overdue`, `discard`): its memory is freed at
   once, its sender is refused, and gets the credit back when it has turned the message ABORTED.

What a peer can make this end keep is bounded: bytes and messages by credit, pieces by the rule that all packets but a
message's last are full (`has_consistent_layout`), incomplete messages by the window of PSNs
(`INCOMPLETE_BEYOND_WINDOW`), aborted messages by credit and by that window, paths by their number.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from srd.proto.config import MAX_FLOWS, MAX_PATH_NUMBERS, ProtocolConfig
from srd.proto.events import Extent
from srd.proto.paths.validation import AddressValidation, RemoteAddress
from srd.proto.recv.ack_path import AckPath, AckPathSelector
from srd.proto.recv.reassembly import Reassembly, new_parts
from srd.proto.seqset import SequenceSet, mask, ranges
from srd.proto.wire.control import (
    NO_ACK_PATH,
    NO_PATH,
    Ack,
    PathReport,
    ack_bytes,
    bitmap_room_bytes,
    max_reports,
)
from srd.proto.wire.data import (
    ABORTED,
    HEADER_BYTES,
    MAX_ACK_WITH_DATA_BYTES,
    MAX_DATAGRAM_BYTES,
    NOT_READY,
    Address,
    ReceivedBurst,
    expand,
    takes_credit,
)
from srd.proto.wire.status import Status

ACK_EVERY_PACKETS: Final = 4
"""Packets after which an ack is due at once. An ack costs both ends and the fabric more than a data packet does: it is
small, but not part of a segment train."""
PREFERRED_REPORT_REPEATS: Final = 2
"""The same while an ack path is preferred (see `recv.ack_path`): the peer may lose acks."""
REPORT_REPEATS: Final = 1
"""Acks that carry the report of a path after a packet arrived on it. A path in use is reported again soon; a second
report would double the cost of an ack at both ends."""
PROBE_ANSWERS: Final = 4
"""Acks that answer a probe. They take different ack paths, since one of them may be dead: with three of four links dead
one answer is lost three times in four, and all four are lost one time in three."""
MAX_ANSWERS: Final = 16
"""Largest number of acks due at one time to answer probes."""
INCOMPLETE_BEYOND_WINDOW: Final = 1 + MAX_FLOWS
"""Incomplete messages that a peer may have beyond one per PSN of the window. An incomplete message lacks a packet that
was sent, whose PSN is within the window, or is partially packetized: one send, and one message of each flow (see
`send.scheduler`)."""
_ABORTED_LIMIT: Final = 64


@dataclass(slots=True)
class RxPath:
    """What was received on one of the peer's paths."""

    source: RemoteAddress
    sequence: int = -1
    sent_us: int = 0
    received_at: float = 0.0
    packets: int = 0
    duplicates: int = 0
    ecn_ce: int = 0
    reports_due: int = 0

    def report(self, path: int, *, now: float) -> PathReport:
        """Return the report of this path, as of now."""
        ack_delay_us = min(max(int((now - self.received_at) * 1e6), 0), 0xFFFFFFFF)
        return PathReport(
            path,
            self.sequence & 0xFFFFFFFF,
            self.sent_us,
            ack_delay_us,
            self.packets & 0xFFFFFFFF,
            self.duplicates & 0xFFFF,
            self.ecn_ce & 0xFFFF,
            int(self.received_at * 1e6) & 0xFFFFFFFF,
        )


class Receiver:
    """`accept` what arrives, send the `ack` when `ack_at` is due, `release` what the application is done with."""

    __slots__ = (
        "_aborted",
        "_aborted_limit",
        "_ack_paths",
        "_answers",
        "_begun_bytes",
        "_begun_messages",
        "_config",
        "_discarded",
        "_dropped",
        "_granted_bytes",
        "_granted_messages",
        "_has_unvalidated",
        "_incomplete",
        "_missing_bytes",
        "_released_bytes",
        "_released_messages",
        "_rx_paths",
        "_unacked_packets",
        "_window",
        "ack_at",
        "check_at",
        "duplicates",
        "landed_bytes",
        "no_memory_at",
        "overhead_bytes",
        "packets",
        "protocol_error",
        "received_bytes",
        "refused_at",
        "segment_bytes",
        "validation",
        "written_bytes",
    )  # fmt: skip

    def __init__(self, config: ProtocolConfig, *, validation: AddressValidation) -> None:
        self.validation = validation
        self.ack_at: float | None = None  # when the next ack is due; None: there is nothing to acknowledge
        self.protocol_error = ""  # how the peer broke the protocol, which ends it; empty: it has not
        self.packets = 0
        self.duplicates = 0
        self.received_bytes = 0  # data packets with their headers, duplicates too
        self.landed_bytes = 0  # new payload, of complete and incomplete messages
        self.written_bytes = 0  # of this, that of writes
        self.segment_bytes = MAX_DATAGRAM_BYTES - HEADER_BYTES  # payload of a full packet; set after the handshake
        self.overhead_bytes = 0  # what protection adds to a control packet; likewise
        self.no_memory_at = -math.inf  # when data was last dropped because the memory was full
        self.refused_at = -math.inf  # when it was last dropped for lack of memory, full or reserved for other messages
        self.check_at = math.inf  # not later than when some incomplete message will be overdue
        self._config = config
        self._window = SequenceSet()
        self._incomplete: dict[int, Reassembly] = {}
        self._missing_bytes = 0  # of all incomplete messages
        self._discarded: dict[int, Reassembly] = {}  # messages discarded here, not turned ABORTED by their sender yet
        self._aborted: dict[int, int] = {}  # messages aborted by their sender: PSN after their last
        self._aborted_limit = _ABORTED_LIMIT  # with more entries than this, those that are over are removed
        self._rx_paths: dict[int, RxPath] = {}
        self._has_unvalidated = False  # whether the address of some path may not be validated
        self._begun_bytes = self._begun_messages = 0  # of all messages that needed credit
        self._released_bytes = self._released_messages = 0
        self._granted_bytes = config.receive_window_bytes  # as in the last ack
        self._granted_messages = config.receive_window_messages
        self._ack_paths = AckPathSelector(paths=config.paths)
        self._answers = 0  # acks that are due at once to answer probes
        self._dropped = False  # whether data was dropped for lack of memory since the last ack
        self._unacked_packets = 0

    def on_nat(self, path: int, *, remote_paths: int) -> None:
        """Note that the peer is behind a NAT: all acks leave from one port; see `AddressValidation.on_nat`."""
        self.validation.on_nat(path, remote_paths=remote_paths)
        self._ack_paths = AckPathSelector(paths=1)

    @property
    def incomplete(self) -> bool:
        """Whether some message has landed only in part."""
        return bool(self._incomplete)

    @property
    def expects_more_data(self) -> bool:
        """Whether the messages that have begun to land lack more than one datagram carries."""
        return self._missing_bytes > MAX_DATAGRAM_BYTES

    def oldest_incomplete(self, holds: Callable[[Extent], bool]) -> int | None:
        """Return the incomplete message that began first, among those with a piece for which `holds` is true."""
        return next(
            (message for message, reassembly in self._incomplete.items() if any(map(holds, reassembly.extents))), None
        )

    def incomplete_messages(self, holds: Callable[[Extent], bool], *, since: float) -> list[int]:
        """Return the incomplete messages idle since `since`, with a piece for which `holds` is true."""
        idle = [
            (message, reassembly) for message, reassembly in self._incomplete.items() if reassembly.landed_at <= since
        ]
        return [message for message, reassembly in idle if any(map(holds, reassembly.extents))]

    def last_landed_at(self, message: int) -> float | None:
        """Return when a part of an incomplete message landed last; None: it is complete, or has not begun."""
        reassembly = self._incomplete.get(message)
        return None if reassembly is None else reassembly.landed_at

    @property
    def credit_bytes(self) -> int:
        """Total message bytes that the peer may start."""
        return self._config.receive_window_bytes + self._released_bytes

    @property
    def credit_messages(self) -> int:
        """Total messages that the peer may start."""
        return self._config.receive_window_messages + self._released_messages

    def accept(self, burst: ReceivedBurst, *, now: float) -> tuple[list[Extent], Reassembly | None]:
        """Accept a received burst of a send; return the pieces to keep, and the message if it is now complete."""
        if not self.has_consistent_layout(burst, offset=burst.offset):
            return [], None
        late = self.is_aborted(burst.message)  # before `admit`, which may move the window past the message's PSNs
        new = self.admit(burst, now=now)
        if not new or late:
            return [], None
        if new == mask(burst.count) and burst.payload_bytes:  # the common case
            kept = [Extent(burst.offset, burst.payload_offset, burst.payload_bytes)]
            landed_bytes = burst.payload_bytes
        else:
            kept = new_parts(burst, new=new)
            landed_bytes = sum(extent.length for extent in kept)
        reassembly = self.on_landed(burst, landed_bytes=landed_bytes, now=now)
        reassembly.extents += kept
        if reassembly.landed_bytes < reassembly.length or self.protocol_error:
            return kept, None
        if not reassembly.landed_ranges():
            self.protocol_error = f"message {burst.message} has packets that overlap"
            return kept, None
        self.finish(burst.message, now=now)
        return kept, reassembly

    def accept_batch(self, burst: ReceivedBurst, *, now: float) -> list[tuple[int, int]]:
        """Accept a received burst of one-packet messages; return which of them are new, as ranges (first, count)."""
        if burst.length > self.segment_bytes:
            return []
        new = self.admit(burst, now=now)
        if new:
            count = new.bit_count()
            self._begin(count * burst.length, messages=count)
            self.landed_bytes += count * burst.length
            self.ack_at = now  # their sender waits for nothing but this ack
        return [] if self.protocol_error else list(ranges(new))

    def has_consistent_layout(self, burst: ReceivedBurst, *, offset: int) -> bool:
        """Whether a burst from `offset` of its message on consists of full packets, but for the message's last."""
        if not burst.payload_bytes:
            return burst.length == offset == 0 and burst.count == 1
        full_bytes = self.segment_bytes
        if offset % full_bytes or burst.payload_bytes != min(burst.count * full_bytes, burst.length - offset):
            return False
        return burst.count == 1 or (
            burst.segment_bytes == full_bytes and burst.payload_bytes > (burst.count - 1) * full_bytes
        )

    def _begin(self, size_bytes: int, *, messages: int) -> None:
        """Count the credit that begun messages take."""
        self._begun_bytes += size_bytes
        self._begun_messages += messages
        if self._begun_bytes > self.credit_bytes or self._begun_messages > self.credit_messages:
            begun = f"{self._begun_messages} messages and {self._begun_bytes} bytes"
            self.protocol_error = f"began {begun}, granted were {self.credit_messages} and {self.credit_bytes}"

    def admit(self, burst: ReceivedBurst, *, now: float) -> int:
        """Accept a burst's PSNs; return which are new, as bits. They are acknowledged, so they must be processed."""
        if burst.psn + burst.count > self._window.base + self._config.window_packets:
            return 0  # beyond the window that was agreed; the sender will send it again
        if burst.path >= MAX_PATH_NUMBERS:
            return 0
        new = self._window.insert(burst.psn, count=burst.count)
        self._record_burst(burst, duplicates=burst.count - new.bit_count())
        if new:
            self._schedule_ack(burst.count, now=now)
        else:
            self.ack_at = now  # the ack of the first copy may have been lost
        return new

    def is_tracking(self, burst: ReceivedBurst) -> bool:
        """Whether all of a burst was received before."""
        return self._window.covers(burst.psn, count=burst.count)

    def is_aborted(self, message: int) -> bool:
        """Whether a message was aborted by its sender while some of its PSNs are still missing."""
        return self._aborted.get(message, 0) > self._window.base

    def unseen(self, burst: ReceivedBurst) -> int:
        """Return which packets of a burst are new and would be accepted, as bits."""
        if burst.path >= MAX_PATH_NUMBERS or burst.psn + burst.count > self._window.base + self._config.window_packets:
            return 0
        return self._window.missing(burst.psn, count=burst.count)

    def begins(self, burst: ReceivedBurst, *, offset: int) -> bool:
        """Whether a burst, from `offset` of its message on, is the first that is accepted of it."""
        if burst.message in self._incomplete or self.is_aborted(burst.message):
            return False
        return self.has_consistent_layout(burst, offset=offset) and self.unseen(burst) != 0

    def is_incomplete(self, message: int) -> bool:
        """Whether a part of a message has landed, and not all of it."""
        return message in self._incomplete

    def refusal(self, message: int) -> Status | None:
        """Return why a message was refused or discarded here, until its sender has turned it ABORTED."""
        reassembly = self._discarded.get(message)
        return None if reassembly is None else reassembly.status

    @property
    def has_refused(self) -> bool:
        """Whether some message was refused or discarded here, and its sender has not turned it ABORTED yet."""
        return bool(self._discarded)

    def refuse_message(self, burst: ReceivedBurst, *, status: Status) -> None:
        """Refuse a message that has not begun, with this status, until its sender turns it ABORTED.

        Like one that was discarded, it takes the peer's credit until then, which bounds what is remembered.
        """
        refused = Reassembly(burst.length, 0, flags=burst.flags, key=burst.key, status=status)
        self._discarded[burst.message] = refused
        self._begin(refused.credit_bytes, messages=1)

    def refuse(self, burst: ReceivedBurst, *, now: float) -> None:
        """Record a burst without accepting it: its path is reported, and its PSNs are not acknowledged."""
        if burst.path < MAX_PATH_NUMBERS:
            self._record_burst(burst, duplicates=0)
            self._schedule_ack(burst.count, now=now)

    def on_landed(self, burst: ReceivedBurst, *, landed_bytes: int, now: float) -> Reassembly:
        """Note that new payload of a message has landed; return the message. May set `protocol_error`."""
        reassembly = self._incomplete.get(burst.message)
        if reassembly is None:
            reassembly = self._open(burst, now=now)
        elif conflict := reassembly.conflicts_with(burst):
            self.protocol_error = conflict
        reassembly.landed_bytes += landed_bytes
        reassembly.landed_at = now
        self._missing_bytes -= landed_bytes
        self.landed_bytes += landed_bytes
        return reassembly

    def _open(self, burst: ReceivedBurst, *, now: float) -> Reassembly:
        reassembly = self._incomplete[burst.message] = Reassembly(
            burst.length, burst.immediate, now, flags=burst.flags, key=burst.key
        )
        self._missing_bytes += burst.length
        if takes_credit(burst.flags):
            self._begin(reassembly.credit_bytes, messages=1)
        if reassembly.credit_bytes:
            self.check_at = min(self.check_at, now + self._patience_s)
        if len(self._incomplete) > self._config.window_packets + INCOMPLETE_BEYOND_WINDOW:
            self.protocol_error = (
                f"has {len(self._incomplete)} incomplete messages, more than an honest sender can have"
            )
        return reassembly

    def _close(self, message: int) -> Reassembly:
        reassembly = self._incomplete.pop(message)
        self._missing_bytes -= reassembly.length - reassembly.landed_bytes
        return reassembly

    def finish(self, message: int, *, now: float) -> None:
        """Note that a message is complete."""
        self._close(message)
        self.ack_at = now  # its sender waits for nothing but this ack

    def on_abort(self, burst: ReceivedBurst, *, now: float) -> tuple[Extent, ...] | None:
        """Process an ABORTED burst; return the pieces of its message, None if it was known before or is invalid."""
        known = self.is_aborted(burst.message)
        if burst.payload_bytes or not self.admit(burst, now=now) or known:
            return None
        base = self._window.base
        if burst.offset > base:
            self._note_aborted(burst.message, end=min(burst.offset, base + self._config.window_packets))
        reassembly = self._incomplete.get(burst.message) or self._discarded.get(burst.message)
        if reassembly is None:
            reassembly = Reassembly(burst.length, 0, flags=burst.flags & ~ABORTED, key=burst.key)
            if takes_credit(burst.flags):
                self._begin(reassembly.credit_bytes, messages=1)
        elif conflict := reassembly.conflicts_with(burst):
            self.protocol_error = conflict
        if self.protocol_error:
            return None
        if takes_credit(burst.flags):
            self.release(reassembly.credit_bytes, messages=1, now=now)
        if self._discarded.pop(burst.message, None) is None and burst.message in self._incomplete:
            self._close(burst.message)
        return tuple(reassembly.extents)

    def _note_aborted(self, message: int, *, end: int) -> None:
        self._aborted[message] = end
        if len(self._aborted) > self._aborted_limit:  # amortised: constant cost per message, however many there are
            base = self._window.base
            self._aborted = {message: end for message, end in self._aborted.items() if end > base}
            self._aborted_limit = max(2 * len(self._aborted), _ABORTED_LIMIT)

    def discard(self, message: int) -> tuple[tuple[Extent, ...], Reassembly]:
        """Discard an incomplete send; return its pieces, and what is left of it.

        Its packets are refused until its sender turns it ABORTED. It takes the peer's credit until then, which bounds
        what is remembered.
        """
        reassembly = self._discarded[message] = self._close(message)
        extents, reassembly.extents = tuple(reassembly.extents), []
        return extents, reassembly

    @property
    def _patience_s(self) -> float:
        return min(self._config.reassembly_timeout_s, self._config.request_timeout_s)

    def overdue(self, *, now: float) -> list[int]:
        """Return the incomplete sends whose time is up."""
        if now < self.check_at:
            return []
        found, self.check_at = [], math.inf
        for message, reassembly in self._incomplete.items():
            if reassembly.credit_bytes:
                idle_at = reassembly.landed_at + self._config.reassembly_timeout_s
                over_at = min(idle_at, reassembly.began_at + self._config.request_timeout_s)
                if now >= over_at:
                    found.append(message)
                else:
                    self.check_at = min(self.check_at, over_at)
        return found

    def _record_burst(self, burst: ReceivedBurst, *, duplicates: int) -> None:
        last_sequence = burst.path_sequence + burst.count - 1
        size_bytes = burst.payload_bytes + burst.count * HEADER_BYTES
        self.received_bytes += size_bytes
        rx_path = self.record_packets(
            burst.path,
            path_sequence=last_sequence,
            sent_us=burst.sent_us,
            address=burst.address,
            received_at=burst.received_at,
            size_bytes=size_bytes,
        )
        rx_path.packets += burst.count
        rx_path.duplicates += duplicates
        if burst.ecn_ce:
            rx_path.ecn_ce += burst.count
        self.packets += burst.count
        self.duplicates += duplicates

    def record_packets(
        self,
        path: int,
        *,
        path_sequence: int,
        sent_us: int,
        address: Address,
        received_at: float,
        size_bytes: int,
    ) -> RxPath:
        """Record packets (data or a probe) of `size_bytes` in all that arrived over a path."""
        rx_path = self._rx_paths.get(path)
        if rx_path is None:
            rx_path = self._rx_paths[path] = RxPath(self._source(path, address), sequence=path_sequence - 1)
        sequence = expand(path_sequence & 0xFFFFFFFF, near=max(rx_path.sequence, 0))
        if sequence > rx_path.sequence:
            rx_path.sequence, rx_path.sent_us, rx_path.received_at = sequence, sent_us, received_at
            if address != rx_path.source.address:
                rx_path.source = self._source(path, address)
        if not rx_path.source.validated and address == rx_path.source.address:
            self.validation.on_packet(path, rx_path.source, size_bytes=size_bytes)
            self._has_unvalidated = True
        rx_path.reports_due = PREFERRED_REPORT_REPEATS if self._ack_paths.preferred else REPORT_REPEATS
        return rx_path

    def _source(self, path: int, address: Address) -> RemoteAddress:
        source = self.validation.source(address, known=[rx_path.source for rx_path in self._rx_paths.values()])
        if source.validated:
            self.validation.on_valid(path, address)
        return source

    def handle_response(self, path: int, *, token: int, address: Address) -> bool:
        """Process the answer to a challenge; return whether it is right. It counts only from the challenged address."""
        rx_path = self._rx_paths.get(path)
        if rx_path is None or rx_path.source.address != address or not rx_path.source.validate(token):
            return False
        self.validation.on_valid(path, address)
        return True

    def answer_probe(
        self,
        path: int,
        *,
        size_bytes: int,
        ack_path: AckPath,
        path_sequence: int,
        sent_us: int,
        address: Address,
        now: float,
        received_at: float,
    ) -> None:
        """Record a probe, which carries the `ack_path` of an ack. Its answers take several ack paths."""
        if ack_path[1] in self._rx_paths or ack_path[1] == NO_PATH:  # NO_PATH: sent to the handshake's address
            self._ack_paths.prefer(ack_path, now=now)
        rx_path = self.record_packets(
            path,
            path_sequence=path_sequence,
            sent_us=sent_us,
            address=address,
            received_at=received_at,
            size_bytes=size_bytes,
        )
        rx_path.packets += 1
        rx_path.reports_due = PROBE_ANSWERS
        self._answers = min(self._answers + PROBE_ANSWERS, MAX_ANSWERS)
        self.ack_at = now

    def _schedule_ack(self, packets: int, *, now: float) -> None:
        self._unacked_packets += packets
        if self._unacked_packets >= ACK_EVERY_PACKETS:
            self.ack_at = now
        elif self.ack_at is None:
            self.ack_at = now + self._config.ack_delay_s

    def ack(self, *, context: int, now: float, room_bytes: int) -> tuple[Ack, Address, int] | None:
        """Return the ack that is due, its destination address and the path to send it from; None if no path is known.

        It has at most `room_bytes`. Reports without room go into the next ack; the far end of the bitmap is left out,
        and the cumulative point covers it later.
        """
        self.ack_at = None
        if not self._rx_paths:
            return None
        due = self._reports_due
        if len(due) > (most := max_reports(room_bytes)):
            due = sorted(due, key=lambda item: -item[1].reports_due)[:most]
            self.ack_at = now + self._config.ack_delay_s
        candidates = [path for path, _ in due]
        if self._answers:
            self._answers -= 1
            if self._answers < PROBE_ANSWERS - 1:
                candidates = []
            self.ack_at = now if self._answers else self.ack_at
        bitmap, room_bits = self._window.bits, 8 * bitmap_room_bytes(room_bytes, reports=len(due))
        if bitmap.bit_length() > room_bits:
            bitmap &= mask(room_bits)
        path, remote_path, address = self._select_ack_path(
            candidates, size_bytes=ack_bytes(bitmap, reports=len(due)) + self.overhead_bytes, now=now
        )
        return self._make_ack(context, bitmap, due, (path, remote_path), now=now), address, path

    def ack_with_data(self, *, context: int, now: float, room_bytes: int) -> Ack | None:
        """Return the ack that is due, or will be, if data that goes to the peer now has room for it.

        None while acks answer a probe, which take paths of their own.
        """
        if self.ack_at is None or self._answers or not self._rx_paths:
            return None
        due = self._reports_due
        if ack_bytes(self._window.bits, reports=len(due)) > min(room_bytes, MAX_ACK_WITH_DATA_BYTES):
            return None
        self.ack_at = None
        return self._make_ack(context, self._window.bits, due, NO_ACK_PATH, now=now)

    @property
    def _reports_due(self) -> list[tuple[int, RxPath]]:
        return [(path, rx_path) for path, rx_path in self._rx_paths.items() if rx_path.reports_due]

    def _make_ack(
        self, context: int, bitmap: int, due: list[tuple[int, RxPath]], ack_path: AckPath, *, now: float
    ) -> Ack:
        self._unacked_packets = 0
        reports = tuple([rx_path.report(path, now=now) for path, rx_path in due])
        for _, rx_path in due:
            rx_path.reports_due -= 1
        self._granted_bytes, self._granted_messages = self.credit_bytes, self.credit_messages
        flags, self._dropped = NOT_READY * self._dropped, False
        credit = (self._granted_bytes, self._granted_messages)
        return Ack(context, self._window.base, bitmap, *credit, reports, flags, *ack_path)

    def _select_ack_path(self, remote_path: list[int], *, size_bytes: int, now: float) -> tuple[int, int, Address]:
        """Return this end's path and the peer's for an ack of so many bytes, and the address of the latter.

        The destination is one of the paths `remote_path`; if none of these may be sent as much, any path that may; else
        the handshake's address.
        """
        if self._has_unvalidated:
            remote_path = self._admitted(remote_path, size_bytes=size_bytes)
        elif not remote_path:
            remote_path = list(self._rx_paths)
        path, target = self._ack_paths.select(remote_path, now=now)
        rx_path = self._rx_paths.get(target)
        if rx_path is None or not rx_path.source.admits(size_bytes):
            return path, NO_PATH, self.validation.handshake_address
        if not rx_path.source.validated:
            rx_path.source.sent_bytes += size_bytes
        return path, target, rx_path.source.address

    def _admitted(self, remote_path: list[int], *, size_bytes: int) -> list[int]:
        """Return those of `remote_path` that may be sent so many bytes, else all paths that may."""
        self._has_unvalidated = not all(rx_path.source.validated for rx_path in self._rx_paths.values())
        admitted = [path for path in remote_path if self._rx_paths[path].source.admits(size_bytes)]
        if not admitted:
            admitted = [path for path, rx_path in self._rx_paths.items() if rx_path.source.admits(size_bytes)]
        return admitted or [NO_PATH]

    def on_no_memory(self, *, now: float) -> None:
        """Note that data of this peer was dropped because the memory was full: an ack is due at once."""
        self.no_memory_at = now
        self.send_not_ready(now=now)

    def send_not_ready(self, *, now: float) -> None:
        """Report NOT_READY to the peer at once: data was dropped for lack of memory."""
        self.refused_at = now
        self._dropped = True
        self.ack_at = now

    def release(self, size_bytes: int, *, messages: int, now: float) -> None:
        """Return the credit of delivered messages; an ack is due once it is an eighth of a window."""
        self._released_bytes += size_bytes
        self._released_messages += messages
        granted_bytes = self.credit_bytes - self._granted_bytes
        granted_messages = self.credit_messages - self._granted_messages
        if (
            granted_bytes >= max(self._config.receive_window_bytes // 8, 1)
            or granted_messages >= max(self._config.receive_window_messages // 8, 1)
        ):  # fmt: skip
            self.ack_at = now

    def release_all(self) -> tuple[Extent, ...]:
        """Drop all incomplete messages; return their pieces."""
        released = tuple(extent for reassembly in self._incomplete.values() for extent in reassembly.extents)
        self._incomplete.clear()
        self._missing_bytes = 0
        return released
