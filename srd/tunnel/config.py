"""Settings of a tunnel."""

from __future__ import annotations

from dataclasses import dataclass

from srd.errors import UsageError

MIN_MTU, MAX_MTU = 1280, 65_535
"""IPv6 needs the one (RFC 8200, section 5); an IP packet's length has 16 bits."""


@dataclass(frozen=True, slots=True)
class TunnelConfig:
    """Settings of one end of a tunnel."""

    mtu: int | None = None
    """Of the interface, bytes; None: what one SRD packet to the other end carries, so that a packet is one datagram."""

    queues: int = 1
    """Queues of the interface (IFF_MULTI_QUEUE); one process serves all, so more help only the kernel's side."""

    target_s: float = 0.005
    """CoDel: how long a packet may wait for the network before the queue counts as too long (RFC 8289, section 4.3)."""

    interval_s: float = 0.1
    """CoDel: for how long it may do so; a round trip of the Internet (RFC 8289, section 4.3)."""

    queue_bytes: int = 16 << 20
    """Longest queue towards one peer. It is 13 ms at 10 Gbit/s; fq_codel's in the kernel is twice as long, of small
    packets with their overhead."""

    queue_packets: int = 10_240
    """Likewise, in packets and super-packets; the kernel's."""

    quantum_bytes: int = 16 << 10
    """What each flow may send in its turn, and a flow that begins before others. RFC 8290 has a packet of Ethernet
    (section 5.2.4); a super-packet would need 43 turns of it, and each costs the interpreter a microsecond."""

    buckets: int = 1024
    """Queues that flows are hashed to (RFC 8290, section 5.2.2)."""

    reorder_bytes: int = 8 << 20
    """Most memory that is kept here for packets that wait for those before them in their flow, from one peer: 4 ms at
    16 Gbit/s. A packet that waits keeps its whole message."""

    reorder_round_trips: float = 8.0
    """How long it waits for them, in smoothed round trips. A loss is detected in one and repaired in the next, behind a
    queue each, and a repair may be lost, too. With three, nearly all retransmissions of TCP inside were spurious."""

    reorder_least_s: float = 0.005
    """And at least so long: below that the hosts' own delays are longer than the network's."""

    reorder_most_s: float = 0.1
    """And at most so long: half of the least retransmission timeout of Linux' TCP (TCP_RTO_MIN, 200 ms)."""

    max_age_s: float = 1.0
    """A packet that the other end has not acknowledged for so long is given up: TCP inside has sent it again by then
    (RFC 6298's minimum of the retransmission timeout), and both would go on sending the same."""

    unanswered_s: float = 2.0
    """A peer that has acknowledged nothing for so long while messages were given up is lost. SRD itself does not notice
    when only one direction is dead, nor while no message waits for long, and `max_age_s` sees to that."""

    def __post_init__(self) -> None:
        """Check the values. Raises UsageError."""
        if self.mtu is not None and not MIN_MTU <= self.mtu <= MAX_MTU:
            raise UsageError(f"mtu: {self.mtu} is not between {MIN_MTU} and {MAX_MTU}")
        if not 1 <= self.queues <= 256:
            raise UsageError(f"queues: {self.queues} is not between 1 and 256")
