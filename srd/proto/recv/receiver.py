"""The receiving half of a peer: which PSNs have arrived, and messages as they become complete.

1. A PSN is accepted once. A packet that arrives again is counted as a duplicate of its path, and its memory is not
   kept.
2. A message is delivered when all its bytes have landed, whatever is missing before it.
3. A peer that begins more than it was granted (`recv.acks`) breaks the protocol, and ends: no conforming sender does
   so, whatever the network does. The credit of an aborted message is released as soon as the abort is known.
4. A message that its sender aborted is remembered until all its PSNs were received, so that no late packet starts it
   again.
5. A message that does not become complete in time is discarded here (`overdue`, `discard`): its memory, or what its
   notification has taken, is freed at once, its sender is refused, and gets the credit back when it has turned the
   message ABORTED.

What a peer can make this end keep is bounded: bytes and messages by credit, pieces by the rule that all packets but a
message's last are full (`has_consistent_layout`), incomplete messages by the window of PSNs
(`INCOMPLETE_BEYOND_WINDOW`), aborted messages by credit and by that window, paths by their number.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from srd.proto.base.seqset import ranges
from srd.proto.config import MAX_FLOWS, MAX_PATH_NUMBERS, ProtocolConfig
from srd.proto.events import Extent
from srd.proto.recv.acks import Acks
from srd.proto.recv.reassembly import Reassembly, new_parts
from srd.proto.wire.data import HEADER_BYTES, MAX_DATAGRAM_BYTES, ReceivedBurst, takes_credit
from srd.proto.wire.status import Status

INCOMPLETE_BEYOND_WINDOW: Final = 1 + MAX_FLOWS
"""Incomplete messages that a peer may have beyond one per PSN of the window. An incomplete message lacks a packet that
was sent, whose PSN is within the window, or is partially packetized: one send, and one message of each flow (see
`send.queue`)."""
_ABORTED_LIMIT: Final = 64


class Receiver:
    """`accept` what arrives; `acks` says what has arrived and what may be sent."""

    __slots__ = (
        "_aborted", "_aborted_limit", "_begun_bytes", "_begun_messages", "_config", "_discarded", "_incomplete",
        "_missing_bytes", "_window", "acks", "check_at", "duplicates", "landed_bytes", "no_memory_at", "packets",
        "protocol_error", "received_bytes", "refused_at", "segment_bytes", "written_bytes",
    )  # fmt: skip

    def __init__(self, config: ProtocolConfig, *, acks: Acks, segment_bytes: int) -> None:
        """Take the payload of a full packet."""
        self.acks = acks
        self.protocol_error = ""  # how the peer broke the protocol, which ends it; empty: it has not
        self.packets = 0
        self.duplicates = 0
        self.received_bytes = 0  # data packets with their headers, duplicates too
        self.landed_bytes = 0  # new payload, of complete and incomplete messages
        self.written_bytes = 0  # of this, that of writes
        self.segment_bytes = segment_bytes
        self.no_memory_at = -math.inf  # when data was last dropped because the memory was full
        self.refused_at = -math.inf  # when it was last dropped for lack of memory, full or reserved for other messages
        self.check_at = math.inf  # not later than when some incomplete message will be overdue
        self._config = config
        self._window = acks.window
        self._incomplete: dict[int, Reassembly] = {}
        self._missing_bytes = 0  # of all incomplete messages
        # Messages discarded here, not turned ABORTED by their sender yet.
        self._discarded: dict[int, Reassembly] | None = None
        self._aborted: dict[int, int] | None = None  # messages aborted by their sender: PSN after their last
        self._aborted_limit = _ABORTED_LIMIT  # with more entries than this, those that are over are removed
        self._begun_bytes = self._begun_messages = 0  # of all messages that needed credit

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

    def accept(self, burst: ReceivedBurst, *, now: float) -> tuple[list[Extent], Reassembly | None]:
        """Accept a received burst of a send; return the pieces to keep, and the message if it is now complete."""
        if not self.has_consistent_layout(burst, offset=burst.offset):
            return [], None
        kept, message = self.land(burst, now=now)
        if message is None:
            return [], None
        message.extents += kept
        if message.landed_bytes < message.length or self.protocol_error:
            return kept, None
        if not message.landed_ranges():
            self.protocol_error = f"message {burst.message} has packets that overlap"
            return kept, None
        self.finish(burst.message, now=now)
        return kept, message

    def accept_batch(self, burst: ReceivedBurst, *, now: float) -> list[tuple[int, int]]:
        """Accept a received burst of one-packet messages; return which of them are new, as ranges (first, count)."""
        if burst.length > self.segment_bytes:
            return []
        new = self.admit(burst, now=now)
        if new:
            count = new.bit_count()
            self._begin(count * burst.length, messages=count)
            self.landed_bytes += count * burst.length
            self.acks.due_at = now  # their sender waits for nothing but this ack
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
        acks = self.acks
        if self._begun_bytes > acks.credit_bytes or self._begun_messages > acks.credit_messages:
            begun = f"{self._begun_messages} messages and {self._begun_bytes} bytes"
            self.protocol_error = f"began {begun}, granted were {acks.credit_messages} and {acks.credit_bytes}"

    def admit(self, burst: ReceivedBurst, *, now: float) -> int:
        """Accept a burst's PSNs; return which are new, as bits. They are acknowledged, so they must be processed."""
        if not self._is_expected(burst):
            return 0
        new = self._window.insert(burst.psn, count=burst.count)
        self._record(burst, duplicates=burst.count - new.bit_count(), now=now)
        return new

    def _is_expected(self, burst: ReceivedBurst) -> bool:
        """Whether a burst is within the window that was agreed; else the sender will send it again."""
        return (
            burst.path < MAX_PATH_NUMBERS and burst.psn + burst.count <= self._window.base + self._config.window_packets
        )

    def _record(self, burst: ReceivedBurst, *, duplicates: int, now: float) -> None:
        self.received_bytes += burst.payload_bytes + burst.count * HEADER_BYTES
        self.packets += burst.count
        self.duplicates += duplicates
        self.acks.on_burst(burst, duplicates=duplicates, now=now)

    def is_aborted(self, message: int) -> bool:
        """Whether a message was aborted by its sender while some of its PSNs are still missing."""
        return self._aborted is not None and self._aborted.get(message, 0) > self._window.base

    def unseen(self, burst: ReceivedBurst) -> int:
        """Return which packets of a burst are new and would be accepted, as bits."""
        return self._window.missing(burst.psn, count=burst.count) if self._is_expected(burst) else 0

    def begins(self, burst: ReceivedBurst) -> bool:
        """Whether a burst of a consistent layout is the first that is accepted of its message."""
        return burst.message not in self._incomplete and not self.is_aborted(burst.message) and self.unseen(burst) != 0

    def is_incomplete(self, message: int) -> bool:
        """Whether a part of a message has landed, and not all of it."""
        return message in self._incomplete

    def refusal(self, message: int) -> Status | None:
        """Return why a message was refused or discarded here, until its sender has turned it ABORTED."""
        reassembly = None if self._discarded is None else self._discarded.get(message)
        return None if reassembly is None else reassembly.status

    @property
    def has_refused(self) -> bool:
        """Whether some message was refused or discarded here, and its sender has not turned it ABORTED yet."""
        return bool(self._discarded)

    def refuse_message(self, burst: ReceivedBurst, *, status: Status) -> None:
        """Refuse a message that has not begun, with this status, until its sender turns it ABORTED.

        Like one that was discarded, it takes the peer's credit until then, which bounds what is remembered.
        """
        refused = Reassembly(burst, status=status)
        self._remember_discarded(burst.message, refused)
        self._begin(refused.credit_bytes, messages=1)

    def _remember_discarded(self, message: int, reassembly: Reassembly) -> None:
        if self._discarded is None:
            self._discarded = {}
        self._discarded[message] = reassembly

    def refuse(self, burst: ReceivedBurst, *, now: float) -> bool:
        """Record a burst without accepting it: its path is reported, and its PSNs are not acknowledged.

        Return False if all of it was accepted before: then it is a duplicate.
        """
        if self._window.covers(burst.psn, count=burst.count):
            self.admit(burst, now=now)
            return False
        if burst.path < MAX_PATH_NUMBERS:
            self._record(burst, duplicates=0, now=now)
        return True

    def land(self, burst: ReceivedBurst, *, now: float) -> tuple[list[Extent], Reassembly | None]:
        """Accept a burst; return its new parts, and its message. None: nothing of it is new, or it was aborted.

        May set `protocol_error`.
        """
        late = self.is_aborted(burst.message)  # before `admit`, which may move the window past the message's PSNs
        new = self.admit(burst, now=now)
        if not new or late:
            return [], None
        parts = new_parts(burst, new=new)
        landed_bytes = sum([part.length for part in parts])
        reassembly = self._incomplete.get(burst.message)
        if reassembly is None:
            reassembly = self._open(burst, now=now)
        elif conflict := reassembly.conflicts_with(burst):
            self.protocol_error = conflict
        reassembly.landed_bytes += landed_bytes
        reassembly.landed_at = now
        self._missing_bytes -= landed_bytes
        self.landed_bytes += landed_bytes
        return parts, reassembly

    def _open(self, burst: ReceivedBurst, *, now: float) -> Reassembly:
        reassembly = self._incomplete[burst.message] = Reassembly(burst, now=now)
        self._missing_bytes += burst.length
        if takes_credit(burst.flags):
            self._begin(reassembly.credit_bytes, messages=1)
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
        self.acks.due_at = now  # its sender waits for nothing but this ack

    def on_abort(self, burst: ReceivedBurst, *, now: float) -> tuple[Extent, ...] | None:
        """Process an ABORTED burst; return the pieces of its message, None if it was known before or is invalid."""
        known = self.is_aborted(burst.message)
        if burst.payload_bytes or not self.admit(burst, now=now) or known:
            return None
        base = self._window.base
        if burst.offset > base:
            self._note_aborted(burst.message, end=min(burst.offset, base + self._config.window_packets))
        reassembly = self._incomplete.get(burst.message)
        if reassembly is None and self._discarded is not None:
            reassembly = self._discarded.pop(burst.message, None)
        if reassembly is None:
            reassembly = Reassembly(burst)
            if takes_credit(burst.flags):
                self._begin(reassembly.credit_bytes, messages=1)
        elif conflict := reassembly.conflicts_with(burst):
            self.protocol_error = conflict
        if self.protocol_error:
            return None
        if takes_credit(burst.flags):
            self.acks.release(reassembly.credit_bytes, messages=1, now=now)
        if burst.message in self._incomplete:
            self._close(burst.message)
        return tuple(reassembly.extents)

    def _note_aborted(self, message: int, *, end: int) -> None:
        if self._aborted is None:
            self._aborted = {}
        self._aborted[message] = end
        if len(self._aborted) > self._aborted_limit:  # amortised: constant cost per message, however many there are
            base = self._window.base
            self._aborted = {message: end for message, end in self._aborted.items() if end > base}
            self._aborted_limit = max(2 * len(self._aborted), _ABORTED_LIMIT)

    def discard(self, message: int) -> tuple[tuple[Extent, ...], Reassembly]:
        """Discard an incomplete message; return its pieces, and what is left of it.

        Its packets are refused until its sender turns it ABORTED. It takes the peer's credit until then, which bounds
        what is remembered.
        """
        reassembly = self._close(message)
        self._remember_discarded(message, reassembly)
        extents, reassembly.extents = tuple(reassembly.extents), []
        return extents, reassembly

    @property
    def _patience_s(self) -> float:
        return min(self._config.reassembly_timeout_s, self._config.request_timeout_s)

    def overdue(self, *, now: float) -> list[int]:
        """Return the incomplete messages whose time is up, of those that the application is notified of."""
        if now < self.check_at:
            return []
        found, self.check_at = [], math.inf
        for message, reassembly in self._incomplete.items():
            if takes_credit(reassembly.flags):
                idle_at = reassembly.landed_at + self._config.reassembly_timeout_s
                over_at = min(idle_at, reassembly.began_at + self._config.request_timeout_s)
                if now >= over_at:
                    found.append(message)
                else:
                    self.check_at = min(self.check_at, over_at)
        return found

    def on_no_memory(self, *, now: float) -> None:
        """Note that data of this peer was dropped because the memory was full."""
        self.no_memory_at = now
        self.send_not_ready(now=now)

    def send_not_ready(self, *, now: float) -> None:
        """Note that data of this peer was dropped for lack of memory, and tell it at once."""
        self.refused_at = now
        self.acks.report_not_ready(now=now)

    def release_all(self) -> tuple[Extent, ...]:
        """Drop all incomplete messages; return their pieces."""
        released = tuple(extent for reassembly in self._incomplete.values() for extent in reassembly.extents)
        self._incomplete.clear()
        self._missing_bytes = 0
        return released
