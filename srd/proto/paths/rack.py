"""Loss detection (PROTOCOL.md, section 7): RACK (RFC 8985) on each path, answers of others, timeouts at last.

1. Reordering on the path. A path is FIFO as long as the switches' hashing is stable, so what was sent before a packet
   that was reported is lost, but for a little reordering. No threshold in packets is needed, however unequal the paths.
2. Answers from other paths. No packet follows the last one of a path, and nothing is reported from a dead path; but the
   peer answers on others. A host that was stopped for a while does not trigger this rule: it answers on no path.
3. Timeout. To make it rare, a path that has not answered within its probe timeout is sent a tail loss probe. Its answer
   is what rule 1 needs on that path, and rule 2 on all others.
4. MTU black holes (`paths.black_hole`). A path may carry short packets and drop longer ones, so that probes are
   answered and nothing times out. After several such losses it is handled as one that timed out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Final

from srd.proto.base.seqset import mask
from srd.proto.outgoing.inflight import Inflight, InflightBurst
from srd.proto.paths.black_hole import BlackHole
from srd.proto.paths.path import Path
from srd.proto.paths.rtt import LONG_RTT_S

REORDERING: Final = 0.25
"""Step of the reordering window, over the smallest round trip (RFC 8985, section 6.2)."""
MAX_REORDERING_STEPS: Final = 8
"""Largest reordering window, two smallest round trips: beyond it the timeout is no worse."""
REORDERING_MEMORY_RTTS: Final = 16
"""Round trips without a duplicate after which the window is one step again (RFC 8985 counts 16 recoveries), and without
a loss, after which late packets are counted anew. A controller keeps its saved window for as long."""
VARIATION_FLOOR: Final = 0.5
"""Smallest margin of the probe timeout, over the smoothed round trip: an idle network shows almost no variation until
it is no longer idle."""
ACK_DELAY_VARIATIONS: Final = 2
"""Mean deviations of the ack delay that are allowed for. RFC 6298 takes four, but for a timeout: here a wrong guess
costs only a probe, and four would detect losses later."""


@dataclass(slots=True)
class RackState:
    """What the peer's reports on all paths show about the packets in flight."""

    newest_acked_sent_at: float = -math.inf
    """Send time of the newest packet that the peer has reported."""
    newest_rtt_s: float = 0.0
    """Its round trip: what is sent later waits at least as long, while a queue grows."""
    reordering_steps: int = 1
    jitter_s: float = 0.0
    """What scheduling in the hosts may add to a round trip."""
    ack_delay_s: float = 0.0
    """Smoothed ack delay of the receiving host: no part of a round trip, but of the time when an answer is due."""
    ack_delay_variation_s: float = 0.0
    """Mean deviation of the ack delay. A host that receives in batches delays the first packet of a batch much longer
    than the last."""
    _black_hole: BlackHole | None = None
    _widened_at: float = -math.inf
    _lost_at: float = -math.inf
    _lost_packets: int = 0
    _late_packets: int = 0

    @property
    def black_hole(self) -> BlackHole:
        """The row of losses of full packets on all paths together. Ask `lost_in_row` first, as for a path's."""
        if self._black_hole is None:
            self._black_hole = BlackHole()
        return self._black_hole

    @property
    def lost_in_row(self) -> int:
        """Full packets that were lost in a row."""
        return 0 if self._black_hole is None else self._black_hole.packets

    def on_report(self, sent_at: float, *, rtt_s: float, ack_delay_s: float = 0.0) -> None:
        """Note a report of a packet sent at `sent_at`, which the receiving host delayed by `ack_delay_s`."""
        if sent_at >= self.newest_acked_sent_at:
            self.newest_acked_sent_at, self.newest_rtt_s = sent_at, rtt_s
        deviation_s = ack_delay_s - self.ack_delay_s
        self.ack_delay_s += deviation_s / 8
        self.ack_delay_variation_s += (abs(deviation_s) - self.ack_delay_variation_s) / 4

    def on_lost(self, packets: int, *, now: float, rtt_s: float) -> None:
        """Note that so many packets were declared lost."""
        if now - self._lost_at > REORDERING_MEMORY_RTTS * rtt_s:
            self._lost_packets = self._late_packets = 0
        self._lost_at = now
        self._lost_packets += packets

    def on_duplicates(self, packets: int, *, now: float, rtt_s: float) -> bool:
        """Note duplicates of retransmitted packets; return whether most of what was declared lost was only late."""
        if now - self._widened_at >= rtt_s:
            self.reordering_steps = min(self.reordering_steps + 1, MAX_REORDERING_STEPS)
            self._widened_at = now
        self._late_packets += packets
        mostly = 0 < self._lost_packets < 2 * self._late_packets
        if mostly:
            self._lost_packets = self._late_packets = 0
        return mostly

    def decay(self, *, now: float, rtt_s: float) -> None:
        """Reset the reordering window to one step after `REORDERING_MEMORY_RTTS` without a duplicate."""
        if self.reordering_steps > 1 and now - self._widened_at > REORDERING_MEMORY_RTTS * rtt_s:
            self.reordering_steps = 1


@dataclass(slots=True)
class LossReport:
    """Result of the loss detection on one path."""

    lost: list[tuple[InflightBurst, int]] = field(default_factory=list)
    """Lost bursts, each with its missing packets as bits relative to its first PSN."""
    lost_bytes: int = 0
    """What the network lost: without the packets that the responder refused, which are sent again as ABORTED."""
    timed_out: bool = False
    """Whether any of them was lost by rule 2 or 3, rather than by reordering on the path."""
    wants_probe: bool = False
    """Whether a tail loss probe is to be sent for the oldest burst left."""
    check_at: float | None = None
    """When the oldest burst left may be declared lost, unless a report arrives before."""


def probe_timeout_s(path: Path, *, jitter_s: float = 0.0) -> float:
    """Return the time within which an answer over this path arrives, if nothing is lost.

    `jitter_s`: what scheduling in the hosts alone may add. Without it, on links with a short round trip every message
    sent alone would trigger a probe, and each probe is answered by several acks.
    """
    return path.rtt.timeout_s(floor_s=max(VARIATION_FLOOR * path.rtt.smoothed_s, jitter_s))


def detect_losses(
    path: Path, *, inflight: Inflight, rack: RackState, now: float, min_rto_s: float
) -> LossReport | None:
    """Remove from a path every burst that is acknowledged or lost; None if all that were reported have arrived."""
    losses: LossReport | None = None
    while path.transmissions:
        head = path.transmissions[0]
        missing = inflight.missing(head.first, count=head.count)
        if missing:
            losses = losses or LossReport()
            lost_at, look_again_at = _deadlines(path, head, rack, min_rto_s)
            if now < lost_at:
                if now < look_again_at:
                    losses.check_at = look_again_at
                    break
                losses.check_at = min(lost_at, now + max(path.rtt.smoothed_s, rack.jitter_s) / 4)
                if path.tail_probe_sequence != head.path_sequence:
                    path.tail_probe_sequence, losses.wants_probe = head.path_sequence, True
                break
            losses.lost.append((head, missing))
            losses.timed_out |= head.last_sequence > path.reported_sequence
            dropped = missing & ~head.psns.refused(head.first, missing=missing)
            losses.lost_bytes += dropped.bit_count() * head.psns.packet_bytes
            path.counters.lost += missing.bit_count()
            rack.on_lost(missing.bit_count(), now=now, rtt_s=path.rtt.smoothed_s)
            _note_lost(path, head, rack=rack, dropped=dropped, now=now)
        elif path.lost_in_row or rack.lost_in_row:
            _note_delivered(path, head, rack=rack)
        del path.transmissions[0]
        path.inflight_bytes -= head.bytes
    if losses is not None and path.transmissions and path.rtt.min_s >= LONG_RTT_S:
        _remove_acknowledged(path, inflight=inflight, rack=rack)
    return losses


def _note_lost(path: Path, burst: InflightBurst, *, rack: RackState, dropped: int, now: float) -> None:
    """Note whether all packets of a burst's size were lost; where one of them arrived, the size passes."""
    full = mask(burst.psns.full(burst.first, count=burst.count))
    if dropped & full != full:
        _note_delivered(path, burst, rack=rack)
    elif full:
        lost, size_bytes = full.bit_count(), burst.psns.packet_bytes
        if not path.mtu_suspect:
            path.size_losses.on_lost(lost, size_bytes=size_bytes)
        path.size_losses.on_gone(burst.path_sequence, count=lost)
        answered_at = rack.newest_acked_sent_at
        rack.black_hole.on_burst(lost, size_bytes=size_bytes, sent_at=burst.sent_at, answered_at=answered_at, now=now)


def _note_delivered(path: Path, burst: InflightBurst, *, rack: RackState) -> None:
    """Note that packets of a burst's size were delivered; on a path whose MTU is suspected that may be long ago."""
    if not (full := burst.psns.full(burst.first, count=burst.count)):
        return
    rack.black_hole.on_delivered(burst.psns.packet_bytes)
    if not path.mtu_suspect:
        path.size_losses.on_delivered(burst.psns.packet_bytes)
    elif path.size_losses.counts(burst.psns.packet_bytes):
        path.size_losses.on_gone(burst.path_sequence, count=full)


def _remove_acknowledged(path: Path, *, inflight: Inflight, rack: RackState) -> None:
    """Remove the acknowledged bursts behind a head that waits to be declared lost: they are not in flight any more.

    On a long path that is much of a window; on a short one the wait is shorter than a turn of a busy host.
    """
    kept, behind = path.transmissions[:1], len(path.transmissions)
    for index in range(1, behind):
        burst = path.transmissions[index]
        if burst.last_sequence > path.reported_sequence:
            behind = index
            break
        if inflight.missing(burst.first, count=burst.count):
            kept.append(burst)
            continue
        path.inflight_bytes -= burst.bytes
        if path.lost_in_row or rack.lost_in_row:
            _note_delivered(path, burst, rack=rack)
    if len(kept) < behind:
        path.transmissions[:behind] = kept


def _deadlines(path: Path, head: InflightBurst, rack: RackState, min_rto_s: float) -> tuple[float, float]:
    """Return when the path's oldest burst is lost by present knowledge, and when to check again before."""
    if head.last_sequence <= path.reported_sequence:
        window_s = rack.reordering_steps * REORDERING * path.rtt.min_s
        lost_at = head.sent_at + path.rtt.latest_s + window_s
        return lost_at, lost_at
    ack_delay_s = rack.ack_delay_s + ACK_DELAY_VARIATIONS * rack.ack_delay_variation_s
    due_at = head.sent_at + max(ack_delay_s - rack.jitter_s, 0.0)  # allow for a slow receiver
    usual_s = probe_timeout_s(path, jitter_s=rack.jitter_s)
    if rack.newest_acked_sent_at >= head.sent_at + path.rtt.smoothed_s:
        return due_at + usual_s, due_at + usual_s
    rto_s = path.rtt.timeout_s(floor_s=min_rto_s)
    if rack.newest_acked_sent_at < head.sent_at <= rack.newest_acked_sent_at + rack.newest_rtt_s:
        # Both were under way at the same time, and may be in the same queue.
        longer_s = max(rack.newest_rtt_s - path.rtt.smoothed_s, 0.0)
        return due_at + rto_s + longer_s, due_at + usual_s + longer_s
    return due_at + rto_s, due_at + usual_s
