"""Congestion control: how many bytes one peer may have in flight over all its paths.

Theory of operation. SRD's published rule is that a connection slows down only when the round trip rises on the
*majority* of its paths or when it delivers less than it sends; a single congested path is left, not slowed for
(Shalev et al., IEEE Micro 40(6), 2020). `MajorityDelay` realises it with Swift's AIMD (Kumar et al., SIGCOMM
2020) on an order statistic of recent samples of all paths, as arXiv:2509.07907 proposes for Swift under spraying.

1. Each path report is one sample: queueing delay (round trip, less the path's minimum, less the time the packet waited
   inside the receiving host) over its target, or that waiting time over its own target, whichever is worse. A sample
   above 1 speaks for slowing down. A switch that marks (ECN, RFC 3168) says so before the delay can: a report of which
   the share m was marked is a sample of 1 + m / 4 at least (DCTCP, too, shrinks by what share was marked, RFC 8257).
2. The level is the lower quartile of the last H samples, H about the number of packets in flight: three in four must
   speak for slowing down. Delays have noise that only adds (a process waiting for its turn); with the median, on two
   busy cores, noise of 2 ms held the window at 5 packets where 42 were the bandwidth-delay product.
3. Below 1 the window grows by one packet a round trip, plus a sixteenth of itself times the distance to the target, so
   that large windows recover as fast as small ones. Until the first decrease it doubles each round trip.
4. Above 1 it shrinks by beta x (level - 1) / level, at most by half, at most once a round trip. Far above (4) it is set
   to what was acknowledged in the last round trip (UET's quick adapt).
5. Loss alone is no signal: lost packets go elsewhere. But a buffer may overflow before the delay reaches its target, so
   while packets are lost, what was delivered bounds the window: no more than 1.25 times the bandwidth-delay product,
   plus what fills the delay target, is in flight (SRD's "delivers less than it sends"). The delay is the whole loop's,
   with what both hosts hold packets and acks for: left out, any window would confirm itself. Without loss there is no
   such bound: where the hosts are the bottleneck it would keep a small window small.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

from srd.proto.config import ProtocolConfig

ADDITIVE_PACKETS = 1.0
"""Growth a round trip near the target (Swift's ai)."""
PROPORTIONAL = 1 / 16
"""Further growth a round trip, as a share of the window, when there is no queue at all."""
BETA = 0.8
"""Strength of a decrease (Swift)."""
MAX_DECREASE = 0.5
"""Largest share that one decrease takes (Swift's max_mdf)."""
QUICK_ADAPT_LEVEL = 4.0
"""Level from which the window is set to what was delivered (UET NSCC: queueing delay above four targets)."""
HISTORY_SAMPLES = 32
"""Most samples that the quartile is taken of: sorting them costs two microseconds, and more would make it late."""
INFLIGHT_GAIN = 1.25
"""Window over bandwidth-delay product at most (SRD aims at the minimum in flight; BBR uses 2). With 1.5 twice as many
packets were lost at short buffers for the same goodput; with 1 the window fell with every link that died."""
TARGET_RTTS = 0.5
"""Queueing delay aimed at, in base round trips (UET's NSCC takes 0.75 to 1). A buffer is rarely more than one, and must
not fill before the delay speaks."""
MARKED_EXCESS = 0.25
"""Level above the target of a report that was marked all through; on most paths that takes a sixth of the window. Four
links of 250 Mbit/s and 2 ms that mark from 0.6 ms of queue on (`scripts/bench ecn`) were used to 0.99 of their capacity
with it, to 0.92 with 0.5 and to 0.79 with 1; with 0 their buffers filled as without marks. To let marked packets earn
nothing in `spray`, too, as REPS does, cost 0.14 of the capacity: the ACK clock was lost."""
JITTER_GAIN = 4.0
"""Delay target over the mean deviation of round trips: four deviations are what RFC 6298 takes for noise, too."""
LOSS_MEMORY_RTTS = 16
"""Round trips after a loss during which rule 5 bounds the window."""
MIN_WINDOW_PACKETS = 0.125
"""Smallest window: one packet in eight round trips."""


class Controller(ABC):
    """What the peer tells a controller, and what it asks."""

    window_bytes: float
    """How much may be in flight; may be less than a packet."""

    @abstractmethod
    def on_ack(self, *, now: float, acked_bytes: int, rtt_s: float, min_rtt_s: float, late_s: float) -> None:
        """`acked_bytes` were newly acknowledged; round-trip times are the peer's, smoothed and smallest.

        `late_s`: how long this host let the ack wait.
        """

    @abstractmethod
    def on_sample(
        self, *, queue_s: float, endpoint_s: float, min_rtt_s: float, variation_s: float, marked: float
    ) -> None:
        """Take one path's report: time spent in the fabric's queues and inside the receiving host.

        `variation_s` is the path's mean deviation of round trips, `marked` the share of the packets of this report that
        bore a congestion mark, 0 to 1.
        """

    @abstractmethod
    def on_loss(self, *, now: float) -> None:
        """Note that packets were found lost."""

    @abstractmethod
    def on_silence(self, *, now: float) -> None:
        """No path answers any more."""

    @abstractmethod
    def undo_silence(self) -> None:
        """The answers that were missing have come: they were only late."""

    @property
    @abstractmethod
    def pacing_gain(self) -> float:
        """Pace over window / round trip."""


class MajorityDelay(Controller):
    """The default controller; see the module's theory of operation."""

    def __init__(self, config: ProtocolConfig, *, packet_bytes: int) -> None:
        self.window_bytes = float(config.initial_window_packets * packet_bytes)
        self._packet_bytes = packet_bytes
        self._config = config
        self._levels: list[float] = []
        self._fresh_levels = 0  # samples taken since the window last changed its size
        self._starting = True
        self._before_silence = self.window_bytes, self._starting
        self._decreased_at = 0.0
        self._lost_at = -math.inf
        self._jitter_s = 0.0  # smoothed deviation of round trips, over all paths
        self._held_s = 0.0  # smoothed time that packets wait in the receiving host, its ack delay included
        self._late_s = 0.0  # smoothed time that acks wait in this host
        self._delivery = DeliveryRate()

    @property
    def pacing_gain(self) -> float:
        """Twice the window a round trip while starting (it doubles), a quarter more after."""
        return 2.0 if self._starting else 1.25

    @property
    def level(self) -> float:
        """Lower quartile of the recent samples; 1 is at the target."""
        ordered = sorted(self._levels)
        return ordered[len(ordered) // 4] if ordered else 0.0

    def on_sample(
        self, *, queue_s: float, endpoint_s: float, min_rtt_s: float, variation_s: float, marked: float
    ) -> None:
        """Push one sample of the level."""
        self._jitter_s += (variation_s - self._jitter_s) / 64
        level = max(queue_s / self.target_s(min_rtt_s), endpoint_s / self._config.endpoint_delay_target_s)
        if marked:
            level = max(level, 1 + MARKED_EXCESS * marked)
        self._levels.append(level)
        self._held_s += (endpoint_s - self._held_s) / 16
        packets = self.window_bytes / self._packet_bytes
        del self._levels[: max(len(self._levels) - min(max(4, int(packets)), HISTORY_SAMPLES), 0)]
        self._fresh_levels += 1

    def target_s(self, min_rtt_s: float) -> float:
        """Queueing delay aimed at: half a base round trip, but not less than what noise looks like here."""
        least_s = max(TARGET_RTTS * min_rtt_s, self._config.min_delay_target_s)
        # Bounded, as a queue's own swings are deviations, too.
        return min(max(least_s, JITTER_GAIN * self._jitter_s), 2 * least_s)

    def on_ack(self, *, now: float, acked_bytes: int, rtt_s: float, min_rtt_s: float, late_s: float) -> None:
        """Grow or shrink, rules 3 to 5."""
        self._late_s += (late_s - self._late_s) / 16
        self._delivery.on_ack(now=now, acked_bytes=acked_bytes, span_s=rtt_s)
        level = self.level
        if level < 1:
            self._grow(acked_bytes, level=level)
        elif now - self._decreased_at >= rtt_s and self._fresh_levels >= len(self._levels) // 2:
            self._shrink(level, now=now)
        fastest = self._delivery.max_bytes_per_s
        if fastest and now - self._lost_at < LOSS_MEMORY_RTTS * rtt_s:
            bdp_bytes = fastest * (min_rtt_s + self._held_s + self._late_s)
            cap = INFLIGHT_GAIN * bdp_bytes + fastest * self.target_s(min_rtt_s)
            floor = self._config.initial_window_packets * self._packet_bytes
            self.window_bytes = min(self.window_bytes, max(cap, floor))

    def on_loss(self, *, now: float) -> None:
        """Remember when, for rule 5."""
        self._lost_at = now

    def _grow(self, acked_bytes: int, *, level: float) -> None:
        if self._starting and level < 0.5:
            self.window_bytes += acked_bytes
            return
        packets = max(self.window_bytes / self._packet_bytes, 1.0)
        growth_packets = ADDITIVE_PACKETS + PROPORTIONAL * packets * (1 - level)
        self.window_bytes += growth_packets * acked_bytes / packets

    def _shrink(self, level: float, *, now: float) -> None:
        self._starting = False
        factor = max(1 - BETA * (level - 1) / level, 1 - MAX_DECREASE)
        window = self.window_bytes * factor
        if level > QUICK_ADAPT_LEVEL:
            window = min(window, self._delivery.last_span_bytes)
        self.window_bytes = max(window, MIN_WINDOW_PACKETS * self._packet_bytes)
        self._decreased_at = now
        self._fresh_levels = 0

    def on_silence(self, *, now: float) -> None:
        """Start again from two packets: nothing is known of a network that has not answered for several timeouts."""
        self._before_silence = self.window_bytes, self._starting
        self._starting = True
        self._decreased_at = now
        self.window_bytes = min(self.window_bytes, 2.0 * self._packet_bytes)
        self._levels.clear()
        self._delivery = DeliveryRate()

    def undo_silence(self) -> None:
        """Go on as before (Eifel, RFC 3522): a host that was stopped for a while says nothing of the network."""
        window_bytes, self._starting = self._before_silence
        self.window_bytes = max(window_bytes, self.window_bytes)


class DeliveryRate:
    """Acknowledged bytes a second, measured over spans of a round trip; remembers the best of the last ten spans."""

    __slots__ = ("_bytes", "_rates", "_since", "last_span_bytes", "max_bytes_per_s")

    SPANS = 10
    """BBR takes the maximum over ten round trips."""

    def __init__(self) -> None:
        self._rates: list[float] = []
        self._since = 0.0
        self._bytes = 0
        self.last_span_bytes = 0
        self.max_bytes_per_s = 0.0

    def on_ack(self, *, now: float, acked_bytes: int, span_s: float) -> None:
        """Count bytes; close the span when a round trip has passed."""
        if not self._since:
            self._since = now  # the first ack starts the clock; what it acknowledges was sent before
            return
        self._bytes += acked_bytes
        elapsed_s = now - self._since
        if elapsed_s >= span_s > 0:
            self._rates = [*self._rates[1 - self.SPANS :], self._bytes / elapsed_s]
            self.last_span_bytes, self._bytes, self._since = self._bytes, 0, now
            self.max_bytes_per_s = max(self._rates)


class Fixed(Controller):
    """A window that never changes: for tests and for measuring without control."""

    def __init__(self, config: ProtocolConfig, *, packet_bytes: int) -> None:
        self.window_bytes = float(config.initial_window_packets * packet_bytes)

    @property
    def pacing_gain(self) -> float:
        """Practically unpaced."""
        return 100.0

    def on_sample(
        self, *, queue_s: float, endpoint_s: float, min_rtt_s: float, variation_s: float, marked: float
    ) -> None:
        """Ignore it."""

    def on_ack(self, *, now: float, acked_bytes: int, rtt_s: float, min_rtt_s: float, late_s: float) -> None:
        """Ignore it."""

    def on_loss(self, *, now: float) -> None:
        """Ignore it."""

    def on_silence(self, *, now: float) -> None:
        """Ignore it."""

    def undo_silence(self) -> None:
        """Ignore it."""
