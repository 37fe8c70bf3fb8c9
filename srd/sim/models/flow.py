"""What every model of a transport has: a sender, a receiver, and what goes between them. Times are in ns.

The packets of a flow have numbers from 0 on (PSN). The NIC asks the sender when it may send (`ready_at`), and for the
PSN of the packet that leaves now (`take`); it hands each reply to `handle`, and calls `handle_timeout` at `timeout_at`.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple

from mypy_extensions import mypyc_attr

NEVER_NS: Final = 2**62
NS_PER_S: Final = 1_000_000_000


class ReplyKind(IntEnum):
    """What a reply says of a packet."""

    ACK = 0
    NAK = 1
    """Out of order: `cumulative` is the packet that is missing."""
    CNP = 2
    """DCQCN's congestion notification; it acknowledges nothing."""


class FlowReply(NamedTuple):
    """What a receiver returns for a packet."""

    kind: ReplyKind
    cumulative: int
    """All packets below this one have arrived."""
    psn: int
    transmission: int
    """Counts what the sender sent, repetitions included: which transmission is replied to."""
    marked: bool


@mypyc_attr(allow_interpreted_subclasses=True)
class FlowSender:
    """The sending end. `sent` counts transmissions, `resent` repetitions."""

    def __init__(self, packets: int) -> None:
        """The flow has so many packets."""
        self.packets = packets
        self.sent = self.resent = 0
        self.acknowledged = 0
        """All packets below this one are acknowledged."""
        self.has_failed = False
        """Whether it has given up."""
        self.timeout_at = NEVER_NS

    @property
    def is_done(self) -> bool:
        """Whether all is acknowledged."""
        return self.acknowledged >= self.packets

    def ready_at(self, now_ns: int) -> int:
        """When it may send next if nothing arrives: at most `now_ns` means now, NEVER_NS that it must wait."""
        raise NotImplementedError

    def take(self, now_ns: int) -> int:
        """Return the PSN of the packet that is sent now; it must be ready."""
        raise NotImplementedError

    def handle(self, reply: FlowReply, now_ns: int) -> None:
        """Take a reply."""
        raise NotImplementedError

    def handle_timeout(self, now_ns: int) -> None:
        """Take the timeout that was set."""
        raise NotImplementedError


@mypyc_attr(allow_interpreted_subclasses=True)
class FlowReceiver:
    """The receiving end. It keeps what arrives out of order, and replies to each packet, unless a model differs."""

    def __init__(self, packets: int) -> None:
        self.packets = packets
        self.expected = 0
        """All packets below this one have arrived."""
        self._beyond: set[int] = set()

    @property
    def is_complete(self) -> bool:
        """Whether all have arrived."""
        return self.expected >= self.packets

    def handle(self, psn: int, *, transmission: int, marked: bool) -> FlowReply | None:
        """Take a packet; return the reply, if there is one."""
        in_order = psn <= self.expected
        if psn == self.expected:
            self.expected += 1
            while self._beyond and self.expected in self._beyond:
                self._beyond.remove(self.expected)
                self.expected += 1
        elif not in_order:
            self._beyond.add(psn)
        kind = ReplyKind.ACK if in_order else ReplyKind.NAK
        return FlowReply(kind, self.expected, psn, transmission, marked)


class FlowRate:
    """A sending rate in bit/s; this one stays at the line's."""

    def __init__(self, line_bps: float) -> None:
        self.bps = self.line_bps = line_bps

    def advance(self, now_ns: int) -> int:
        """Let the time pass up to now; return when the rate may change by itself next."""
        del now_ns
        return NEVER_NS

    def handle_sent(self, length_bytes: int, now_ns: int) -> None:
        """Take note of a packet that was sent."""

    def handle_congestion(self, now_ns: int) -> None:
        """Take a congestion notification."""
