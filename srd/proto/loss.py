"""Loss detection on one path: RACK (RFC 8985) on the path's own sequence, and the timeout as the last resort.

A path is FIFO as far as hashing keeps its promise: once the peer reports path sequence H, everything this path sent
before H and that is still unacknowledged is lost, except that a little reordering is forgiven: a packet is given a
round trip and a reordering window of a quarter of the smallest one from its sending. No threshold in packets is needed,
however unequal the paths are.

What is unacknowledged with nothing reported behind it is lost after the path's timeout.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from srd.proto.path import Path
from srd.proto.sent import SentPackets, Transmission

REORDERING = 0.25
"""Reordering window over the smallest round trip (RFC 8985, section 6.2)."""


@dataclass(slots=True)
class Settled:
    """What a look at one path brought to light."""

    lost: list[tuple[Transmission, int]] = field(default_factory=list)
    """Lost bursts, each with its missing packets as bits relative to its first PSN."""
    timed_out: bool = False
    """Whether any of them was lost by timeout rather than by what was reported behind it."""
    look_again_at: float | None = None
    """When the oldest burst left will be lost, unless something is heard of it."""


def settle(path: Path, *, sent: SentPackets, now: float, min_rto_s: float) -> Settled:
    """Take from the path's head every burst whose fate is known."""
    settled = Settled()
    timeout_s = path.rtt.timeout_s(floor_s=min_rto_s)
    while path.transmissions:
        head = path.transmissions[0]
        missing = sent.missing(head.first, count=head.count)
        if missing:
            overtaken = head.last_sequence <= path.reported_sequence
            patience_s = path.rtt.latest_s + REORDERING * path.rtt.min_s if overtaken else timeout_s
            if now < head.sent_at + patience_s:
                settled.look_again_at = head.sent_at + patience_s
                break
            settled.lost.append((head, missing))
            settled.timed_out |= not overtaken
            path.counters.lost += missing.bit_count()
        path.transmissions.popleft()
        path.inflight_bytes -= head.bytes
    return settled
