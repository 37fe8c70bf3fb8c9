"""Loss detection: RACK (RFC 8985) on each path, what other paths say, and the timeout as the last resort.

1. Overtaken on its path. A path is FIFO as far as hashing keeps its promise: once the peer reports path sequence H,
   everything this path sent before H and that is still unacknowledged is lost, except that a little reordering is
   forgiven: a packet is given a round trip and a reordering window from its sending. The window is a quarter of the
   smallest round trip, and grows by as much with every round trip in which the peer had received in duplicate what was
   sent again (RFC 8985, section 6.2.1). No threshold in packets is needed, however unequal the paths are.
2. Overtaken by other paths. Nothing follows the last packet of a path, and nothing at all comes back from one that is
   dead. But the peer answers on others: what was not acknowledged in its path's usual time, when a packet sent a whole
   round trip later was answered from elsewhere, is lost. A host that was stopped for a while is not taken for that,
   as it answers nothing meanwhile.
3. Silence. With no answer from anywhere a packet is lost after the path's timeout, which is long. So that it seldom
   comes to that, a path that has not answered in its usual time is asked (RFC 8985's tail loss probe); the answer is
   what rule 1 needs on that path, and rule 2 on all others.
4. A path may carry small packets and swallow full ones: its MTU is less than what was agreed. What is asked there is
   answered, so that nothing looks silent. After several full packets without one that arrived the path counts as
   silent (black hole detection, RFC 8899, section 4.3), and is probed at full size until it answers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from srd.proto.paths.path import Path
from srd.proto.send.inflight import Inflight, InflightBurst
from srd.proto.seqset import mask

REORDERING = 0.25
"""Step of the reordering window, over the smallest round trip (RFC 8985, section 6.2)."""
MAX_REORDERING_STEPS = 8
"""Largest reordering window, two smallest round trips: beyond it the timeout is no worse."""
REORDERING_MEMORY_RTTS = 16
"""Round trips without a duplicate after which the window is one step again (RFC 8985 counts 16 recoveries); and without
a loss, after which what was late is counted anew. A controller remembers as long what it would go back to."""
VARIATION_FLOOR = 0.5
"""Least patience beyond the smoothed round trip for rule 2, over that round trip: a variation of nearly nothing is what
an idle network shows, until it is no longer idle."""
ACK_DELAY_VARIATIONS = 2
"""Mean deviations of the time in the receiving host that an answer is waited for. RFC 6298 has four, but for a timeout:
here a wrong guess costs a probe, and with four 1 % of loss cost another half percent of the capacity."""


@dataclass(slots=True)
class RackState:
    """What the peer's answers on all paths say of the packets that it has not answered."""

    newest_acked_sent_at: float = -math.inf
    """When the youngest packet was sent that the peer has reported."""
    reordering_steps: int = 1
    jitter_s: float = 0.0
    """What the hosts' scheduling may add to a round trip."""
    ack_delay_s: float = 0.0
    """How long packets wait in the receiving host, smoothed: no part of a round trip, but of when an answer is due."""
    ack_delay_variation_s: float = 0.0
    """Mean deviation of it. A host that takes packets by the batch holds the first of one much longer than the last."""
    _widened_at: float = -math.inf
    _lost_at: float = -math.inf
    _lost_packets: int = 0
    _late_packets: int = 0

    def on_report(self, sent_at: float, *, ack_delay_s: float = 0.0) -> None:
        """Note a report of a packet sent at `sent_at`, which waited in the receiving host for `ack_delay_s`."""
        self.newest_acked_sent_at = max(self.newest_acked_sent_at, sent_at)
        deviation_s = ack_delay_s - self.ack_delay_s
        self.ack_delay_s += deviation_s / 8
        self.ack_delay_variation_s += (abs(deviation_s) - self.ack_delay_variation_s) / 4

    def on_lost(self, packets: int, *, now: float, rtt_s: float) -> None:
        """Note that so many were found lost."""
        if now - self._lost_at > REORDERING_MEMORY_RTTS * rtt_s:
            self._lost_packets = self._late_packets = 0
        self._lost_at = now
        self._lost_packets += packets

    def on_duplicates(self, packets: int, *, now: float, rtt_s: float) -> bool:
        """Note that the peer had received what was sent again; return whether most of what was lost was only late."""
        if now - self._widened_at >= rtt_s:
            self.reordering_steps = min(self.reordering_steps + 1, MAX_REORDERING_STEPS)
            self._widened_at = now
        self._late_packets += packets
        mostly = 0 < self._lost_packets < 2 * self._late_packets
        if mostly:
            self._lost_packets = self._late_packets = 0
        return mostly

    def decay(self, *, now: float, rtt_s: float) -> None:
        """Forget old reordering."""
        if self.reordering_steps > 1 and now - self._widened_at > REORDERING_MEMORY_RTTS * rtt_s:
            self.reordering_steps = 1


@dataclass(slots=True)
class LossReport:
    """What a look at one path brought to light."""

    lost: list[tuple[InflightBurst, int]] = field(default_factory=list)
    """Lost bursts, each with its missing packets as bits relative to its first PSN."""
    lost_bytes: int = 0
    timed_out: bool = False
    """Whether any of them was lost by silence (rules 2 and 3) rather than by what was reported behind it."""
    wants_probe: bool = False
    """Whether the path is to be asked what became of the oldest burst left."""
    check_at: float | None = None
    """When the oldest burst left may be found lost, unless something is heard of it."""


def probe_timeout_s(path: Path, *, jitter_s: float = 0.0) -> float:
    """Return how long an answer over this path takes at most, if nothing is wrong.

    `jitter_s`: what the hosts' scheduling alone may add. On links of 0.1 ms, without it, a path was asked after every
    message that went alone, and each answer is four packets.
    """
    return path.rtt.timeout_s(floor_s=max(VARIATION_FLOOR * path.rtt.smoothed_s, jitter_s))


def detect_losses(
    path: Path, *, inflight: Inflight, rack: RackState, now: float, min_rto_s: float, datagram_bytes: int
) -> LossReport | None:
    """Take from the path's head every burst whose fate is known; None if all that it carried has arrived."""
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
            losses.lost_bytes += missing.bit_count() * head.psns.packet_bytes
            path.counters.lost += missing.bit_count()
            rack.on_lost(missing.bit_count(), now=now, rtt_s=path.rtt.smoothed_s)
            full = mask(max(head.count - 1, 1))  # of several packets all but the last surely are
            if missing & full == full and head.psns.packet_bytes >= datagram_bytes:
                path.full_size_losses += missing.bit_count()
        elif head.psns.packet_bytes >= datagram_bytes:
            path.full_size_losses = 0
        del path.transmissions[0]
        path.inflight_bytes -= head.bytes
    return losses


def _deadlines(path: Path, head: InflightBurst, rack: RackState, min_rto_s: float) -> tuple[float, float]:
    """Return when the path's oldest burst is lost by what is known now, and when more may be known."""
    if head.last_sequence <= path.reported_sequence:
        window_s = rack.reordering_steps * REORDERING * path.rtt.min_s
        lost_at = head.sent_at + path.rtt.latest_s + window_s
        return lost_at, lost_at
    ack_delay_s = rack.ack_delay_s + ACK_DELAY_VARIATIONS * rack.ack_delay_variation_s
    due_at = head.sent_at + max(ack_delay_s - rack.jitter_s, 0.0)  # a receiver that is slow loses nothing
    usual_at = due_at + probe_timeout_s(path, jitter_s=rack.jitter_s)
    if rack.newest_acked_sent_at >= head.sent_at + path.rtt.smoothed_s:
        return usual_at, usual_at
    return due_at + path.rtt.timeout_s(floor_s=min_rto_s), usual_at
