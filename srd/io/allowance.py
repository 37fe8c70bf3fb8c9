"""The allowance of an endpoint: how many bytes and packets per second it may send, and as many receive.

Theory of operation. It is what a card gives to each of its virtual functions, as an EC2 instance has an allowance.

1. Each direction has a token bucket for bytes and one for packets, which are charged with what was sent or read. While
   one is in debt nothing more goes: `ready_at` is when it may go on. So no more is carried in a time T than the rate
   times T, plus the depth (`burst_s`), plus what cannot be divided: a packet to send, or one batch to read, which has
   as many segment trains (64 KiB or 64 packets) as there is room for, and at least one.
2. After a debt the bucket is filled for `RESUME_S` before anything goes on: otherwise an interpreter would be woken for
   each packet. What is beyond that in the bucket makes up for a loop that wakes up late.
3. Bytes are those of IP packets, all headers included. Control packets (acks) are charged, too. But they are never held
   back on the way out: without them the other ends could not send, and would take this one for dead. On the way in they
   wait behind the data, as they lie in the same sockets. All sockets have their turns.
4. What is to be sent waits in the core, not in a queue: it is not packetized yet, so it has no time of sending, and no
   round trip is longer for it. The congestion window does not grow meanwhile, as the window is not the limit.
   Retransmissions are charged like any packet.
5. What was received waits in the kernel's socket, which drops what is too much. The senders get to know of it in two
   ways: the ack delay, since acks report how long packets waited, and, for packets that waited longer than
   `MARK_AFTER_S`, a congestion mark, as a router's queue would set (RFC 3168). The ack delay alone does not slow down
   windows below the initial one, and those of many senders are too much. A smaller buffer would not help: with one of
   0.4 s, 64 senders at 100 Mbit/s kept losing probes and acks, and got a tenth of it; with the usual one, 0.9.
6. Counters are those of ENA: packets that waited for one of the buckets. A packet that the kernel has dropped meanwhile
   counts as dropped (`Engine.dropped_packets`), since its cause is not known. Packets that are refused before the core
   sees them (malformed, not authentic, no memory) are not charged: the owner of the endpoint gets nothing of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from netns.base.token_bucket import TokenBucket
from srd.proto.base.errors import UsageError

RESUME_S: Final = 0.001
"""How far a bucket is filled after a debt, as time at its rate: like `ProtocolConfig.pacing_depth_s`."""
MARK_AFTER_S: Final = 0.02
"""Waiting time of a received packet from which it is marked. With 24 senders at 100 Mbit/s, 1 % of the packets were
sent again; with CoDel's target of 5 ms it was 3 %, as windows of a single packet need a timeout for each loss, and
without marks 5 %, as 16 packets of each sender then wait for longer than timeouts."""
MIN_BANDWIDTH_BPS: Final = 100_000_000
"""Smallest bandwidth: a segment train of 64 KiB takes it 5 ms, which is less than the margin of a timeout
(`min_rto_s`). At a tenth of that, eight senders that share it lose most of it to retransmissions, and some take the
other end for dead."""
MIN_PACKETS_PER_SECOND: Final = 10_000
"""Likewise: a train of 64 packets takes 6.4 ms."""
MAX_BURST_S: Final = 1.0
"""A longer burst would exceed the allowance of a second by as much again."""


@dataclass(frozen=True, slots=True)
class Allowance:
    """What an endpoint may send, and as much receive, in the long run."""

    bandwidth_bps: int | None = None
    """Bits per second of IP packets, in each direction; None: no limit. There is no reasonable default: it is what the
    owner of the endpoint has been promised."""

    packets_per_second: int | None = None
    """Packets per second in each direction; None: no limit. ENA's allowance is for both directions together; with one
    for each, a flood of incoming packets does not keep this endpoint from sending."""

    burst_s: float = 0.01
    """How much may be carried at once after a pause, as time at these rates. It makes up for an event loop that wakes
    up late: on a busy host a process waits as long to be scheduled (`ProtocolConfig.min_rto_s`). And it is only a
    hundredth of what is carried in a second."""

    def __post_init__(self) -> None:
        """Check the values. Raises UsageError."""
        for name, value, least in (
            ("bandwidth_bps", self.bandwidth_bps, MIN_BANDWIDTH_BPS),
            ("packets_per_second", self.packets_per_second, MIN_PACKETS_PER_SECOND),
        ):
            if value is not None and value < least:
                raise UsageError(f"{name}: {value} is less than {least}; give more, or None for no limit")
        if not 0 < self.burst_s <= MAX_BURST_S:
            raise UsageError(f"burst_s: {self.burst_s} is not between 0 (excluded) and {MAX_BURST_S:g} seconds")


@dataclass(frozen=True, slots=True)
class AllowanceExceeded:
    """Packets that had to wait because the allowance was exhausted."""

    bandwidth_in: int = 0
    bandwidth_out: int = 0
    packets_per_second: int = 0
    """In both directions."""


class DirectionLimit:
    """The allowance of one direction. Times are in seconds of one monotonic clock."""

    __slots__ = (
        "_bytes", "_packets", "_resume_s", "_waits_for_bytes", "_waits_for_packets", "bandwidth_exceeded",
        "packets_exceeded", "ready_at",
    )  # fmt: skip

    def __init__(self, allowance: Allowance) -> None:
        depth_s, bps, pps = allowance.burst_s, allowance.bandwidth_bps, allowance.packets_per_second
        self._bytes = None if bps is None else TokenBucket(bps / 8, depth_s=depth_s)
        self._packets = None if pps is None else TokenBucket(pps, depth_s=depth_s)
        self._resume_s = min(RESUME_S, depth_s / 2)
        self._waits_for_bytes = False  # which of the two buckets were in debt last
        self._waits_for_packets = False
        self.ready_at = 0.0
        """When more may be carried; in the past unless a bucket is in debt."""
        self.bandwidth_exceeded = 0
        self.packets_exceeded = 0

    def room(self, now: float, *, item_bytes: int, item_packets: int = 1) -> int:
        """Return how many items of that size may be carried; at least 1 unless a bucket is in debt, then 0."""
        if now < self.ready_at:
            return 0
        room = float(1 << 30)
        if self._bytes is not None:
            room = min(room, self._bytes.tokens(now) / item_bytes)
        if self._packets is not None:
            room = min(room, self._packets.tokens(now) / item_packets)
        return max(int(room), 1)

    def charge(self, size_bytes: int, *, packets: int, now: float) -> None:
        """Account for packets that were carried, with `size_bytes` in all."""
        resume_s, bytes_at, packets_at = self._resume_s, 0.0, 0.0
        if self._bytes is not None:
            self._bytes.charge(size_bytes, now=now)
            bytes_at = self._bytes.ready_at()
        if self._packets is not None:
            self._packets.charge(packets, now=now)
            packets_at = self._packets.ready_at()
        latest_at = max(bytes_at, packets_at)
        if latest_at >= now:
            self._waits_for_bytes, self._waits_for_packets = bytes_at >= now, packets_at >= now
            self.ready_at = latest_at + resume_s

    def count_waited(self, packets: int) -> None:
        """Count packets that could not be carried before `ready_at`, by what they waited for."""
        if self._waits_for_bytes:
            self.bandwidth_exceeded += packets
        if self._waits_for_packets:
            self.packets_exceeded += packets
