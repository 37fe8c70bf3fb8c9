"""Congestion control: how many bytes one peer may have in flight over all its paths.

Theory of operation. SRD's published rule is that a connection slows down only when the round trip rises on the
*majority* of its paths or when it delivers less than it sends; a single congested path is left, not slowed for
(Shalev et al., IEEE Micro 40(6), 2020). `MajorityDelay` realises it with Swift's AIMD (Kumar et al., SIGCOMM
2020) on an order statistic of recent samples of all paths, as arXiv:2509.07907 proposes for Swift under spraying.

1. Each path report is one sample: queueing delay (round trip, less the path's smallest, less the time the packet waited
   inside the receiving host) over its target, or that waiting time, the least of the last 0.1 s, over its own target,
   whichever is worse; the waiting time counts while the window is more than the initial one. A window of a few packets
   is not what a host is slow from: each of them waits for the process to have its turn, and fewer would wait as long,
   so that the window would shrink to nothing. A sample above 1 speaks for slowing down. In the first second the
   smallest round trip of all paths, the handshake's among them, is taken for each one's: with 64 paths and a few
   packets in flight most have never met an empty queue, and each would take the standing one for the length of its way.
   Answers to probes are no samples: what is short arrives sooner, and only tells how long the way is. A switch that
   marks (ECN, RFC 3168) says so before the delay can: a report of which the share m was marked is a sample of 1 + m / 4
   at least (DCTCP, too, shrinks by what share was marked, RFC 8257).
2. The target grows as the window falls, with the inverse of its root (Swift's flow scaling, section 3.2). Of flows that
   see the same queue those with more shrink while those with less grow, so that they meet; and many flows, which cannot
   do with less than a packet or two each, have a queue that holds them.
3. The level is the lower quartile of the last H samples, H about the number of packets in flight: three in four must
   speak for slowing down. Delays have noise that only adds (a process waiting for its turn); with the median, on two
   busy cores, noise of 2 ms held the window at 5 packets where 42 were the bandwidth-delay product.
4. Below 1 the window grows by one packet a round trip, plus a 32nd of itself times the distance to the target, so that
   large windows recover as fast as small ones. Until the first decrease it doubles each round trip. While something
   else is the limit, the application or a processor, it does not grow: nothing is known of such a window (RFC 7661).
5. Above 1 it shrinks by beta x (level - 1) / level, at most by half, at most once a round trip. Far above (4) it is set
   to what was acknowledged in the last round trip (UET's quick adapt).
6. Loss alone is no signal: lost packets go elsewhere. But a buffer may overflow before the delay reaches its target, so
   while packets are lost, what was delivered bounds the window: no more than 1.25 times the bandwidth-delay product,
   plus what fills the delay target, is in flight (SRD's "delivers less than it sends"). The delay is that of the paths
   in use, with what both hosts hold packets and acks for: left out, any window would confirm itself. Without loss there
   is no such bound: where the hosts are the bottleneck it would keep a small window small.
7. When more than half of what was in flight, and a few packets, is lost within a round trip, be it by silence, the
   window is set to what was delivered; when nothing was delivered since, it is halved, as a timeout is doubled: of a
   queue that let nothing through no delay is told, and what is sent again in one go is lost again (48 first windows of
   a bandwidth-delay product each; 1,000 messages of eight packets). Half is far above what loss without congestion
   takes.
8. What was no loss is undone. When most of what was lost turns out to have arrived (the receiver reports duplicates;
   RFC 3708), or what all paths had left unanswered is answered, the window is what it was before (Eifel, RFC 4015).
"""

from __future__ import annotations

import math
from typing import NamedTuple

from srd.proto.config import ProtocolConfig
from srd.proto.congestion.base import Controller
from srd.proto.congestion.rate import DeliveryRate
from srd.proto.paths.rtt import WindowedMin

ADDITIVE_PACKETS = 1.0
"""Growth a round trip near the target (Swift's ai)."""
PROPORTIONAL = 1 / 32
"""Further growth a round trip, as a share of the window, when there is no queue at all. It favours who has more: with
1/16 two flows' shares still were 1.8 to 1 after 200 round trips (Jain's index 0.92), with 1/32 1.4 to 1 (0.97)."""
BETA = 0.8
"""Strength of a decrease (Swift)."""
MAX_DECREASE = 0.5
"""Largest share that one decrease takes (Swift's max_mdf)."""
START_SAMPLES = 8
"""Samples without which the start is not over (HyStart++, RFC 9406: N_RTT_SAMPLE): after it growth is slow."""
QUICK_ADAPT_LEVEL = 4.0
"""Level from which the window is set to what was delivered (UET NSCC: queueing delay above four targets)."""
HISTORY_SAMPLES = 32
"""Most samples that the quartile is taken of: sorting them costs two microseconds, and more would make it late."""
INFLIGHT_GAIN = 1.25
"""Window over bandwidth-delay product at most (SRD aims at the minimum in flight; BBR uses 2). With 1.5 twice as many
packets were lost at short buffers for the same goodput; with 1 the window fell with every link that died."""
SCALING_RTTS = 0.82
"""What the delay target of a window of one packet has beyond that of a large one, in base round trips, times 0.9: the
target of a window of two is 0.5 more. With 48 senders a port's buffer of one bandwidth-delay product has two packets of
each; a third of it is left for what comes at once. More makes two flows level sooner and 48 senders' times spread."""
SCALING_MAX_PACKETS = 100.0
"""Window from which the target is not scaled (Swift's fs_max)."""
ECN_EXCESS = 0.25
"""Level above the target of a report that was marked all through; on most paths that takes a sixth of the window. Four
links of 250 Mbit/s and 2 ms that mark from 0.6 ms of queue on (`scripts/bench ecn`) were used to 0.99 of their capacity
with it, to 0.92 with 0.5 and to 0.79 with 1; with 0 their buffers filled as without marks. To let marked packets earn
nothing in `selector`, too, as REPS does, cost 0.14 of the capacity: the ACK clock was lost."""
ENDPOINT_DELAY_WINDOW_S = 0.1
"""A receiving host is slow if packets have waited there for so long all the time (CoDel's interval, RFC 8289): where
others use its processors, too, a process that has waited for its turn for 5 ms reads all that came, and is as fast as
before; fewer packets would not have waited less."""
JITTER_GAIN = 4.0
"""Delay target over the mean deviation of round trips: four deviations are what RFC 6298 takes for noise, too."""
LOSS_MEMORY_RTTS = 16
"""Round trips after a loss during which rule 6 bounds the window. Blows within as many are one for rule 8: a window is
sent again in less."""
COLLAPSE = 0.5
"""Share of what was in flight that is lost within a round trip when rule 7 applies."""
RESTART_PACKETS = 6
"""Least window that rule 7 and quick adapt leave at first, and least loss that rule 7 is applied for: with one or two,
flows waited for the timeouts of a packet or two while the few that had been lucky took the link (spread of 48 senders'
times 1.5 to 1.9; with 4 up to 1.33, with 6 1.29, with 8 the last is later); one lost packet of two says nothing."""
MIN_HALVED_PACKETS = 0.25
"""Least window that halving for want of any delivery leaves: with 1, 48 senders' times spread up to 1.45 and a thousand
took half as long again; less would make a path MTU that shrank take seconds to notice."""
MIN_WINDOW_PACKETS = 0.125
"""Smallest window: one packet in eight round trips."""


class MajorityDelay(Controller):
    """The default controller; see the module's theory of operation."""

    def __init__(self, config: ProtocolConfig, *, packet_bytes: int) -> None:
        self.window_bytes = float(config.initial_window_packets * packet_bytes)
        self._packet_bytes = packet_bytes
        self._config = config
        self._levels: list[float] = []
        self._fresh_levels = 0  # samples taken since the window last changed its size
        self._starting = True
        self._saved: _Saved | None = None
        self._decreased_at = 0.0
        self._lost_at = -math.inf
        self._collapsed_at = -math.inf
        self._lost_since, self._lost_bytes = -math.inf, 0  # of a round trip
        self._nothing_delivered = False  # nothing was delivered since the last collapse
        self._rtt_s = config.initial_rtt_s
        self._jitter_s = 0.0  # smoothed deviation of round trips, over all paths
        self._base_s = 0.0  # smoothed length of the paths, each as often as it is heard from
        self._endpoint_delay_s = 0.0  # smoothed time that packets wait in the receiving host, its ack delay included
        self._min_endpoint_delay = WindowedMin(window_s=ENDPOINT_DELAY_WINDOW_S)
        self._ack_wait_s = 0.0  # smoothed time that acks wait in this host
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
        self,
        *,
        now: float,
        queue_s: float,
        endpoint_s: float,
        min_rtt_s: float,
        variation_s: float,
        ecn_fraction: float,
    ) -> None:
        """Push one sample of the level."""
        self._jitter_s += (variation_s - self._jitter_s) / 64
        self._min_endpoint_delay.observe(endpoint_s, now=now)
        level = queue_s / self.target_s(min_rtt_s)
        if self.window_bytes > self._config.initial_window_packets * self._packet_bytes:
            level = max(level, self._min_endpoint_delay.min_s / self._config.endpoint_delay_target_s)
        if ecn_fraction:
            level = max(level, 1 + ECN_EXCESS * ecn_fraction)
        self._levels.append(level)
        self._endpoint_delay_s += (endpoint_s - self._endpoint_delay_s) / 16
        self._base_s += (min_rtt_s - self._base_s) / (16 if self._base_s else 1)
        packets = self.window_bytes / self._packet_bytes
        del self._levels[: max(len(self._levels) - min(max(4, int(packets)), HISTORY_SAMPLES), 0)]
        self._fresh_levels += 1

    def target_s(self, min_rtt_s: float) -> float:
        """Queueing delay aimed at: not less than what noise looks like here, and more for small windows."""
        floor_s = self._config.min_delay_target_s
        least_s = max(self._config.delay_target_rtts * min_rtt_s, floor_s)
        noise_s = max(JITTER_GAIN * self._jitter_s, least_s)
        packets = self.window_bytes / self._packet_bytes
        # Bounded, as a queue's own swings are deviations, too; but no queue is that of less than a packet.
        steady_s = min(noise_s, least_s + floor_s) if packets > 1 else noise_s
        scale = 1 / math.sqrt(min(max(packets, 1.0), SCALING_MAX_PACKETS)) - 1 / math.sqrt(SCALING_MAX_PACKETS)
        return steady_s + SCALING_RTTS * min_rtt_s * scale

    def on_ack(self, *, now: float, acked_bytes: int, rtt_s: float, ack_wait_s: float, cwnd_limited: bool) -> None:
        """Grow or shrink, rules 4 to 6."""
        self._ack_wait_s += (ack_wait_s - self._ack_wait_s) / 16
        self._rtt_s, self._nothing_delivered = rtt_s, False
        self._delivery.on_ack(now=now, acked_bytes=acked_bytes, span_s=self._loop_s)
        level = self.level
        if level < 1:
            if cwnd_limited:
                self._grow(acked_bytes, level=level)
        elif now - self._decreased_at >= rtt_s and self._fresh_levels >= self._enough_levels:
            self._shrink(level, now=now)
        fastest = self._delivery.max_bytes_per_s
        if fastest and now - self._lost_at < LOSS_MEMORY_RTTS * self._loop_s:
            bdp_bytes = fastest * (self._base_s + self._endpoint_delay_s + self._ack_wait_s)
            cap = INFLIGHT_GAIN * bdp_bytes + fastest * self.target_s(self._base_s)
            floor = self._config.initial_window_packets * self._packet_bytes
            self.window_bytes = min(self.window_bytes, max(cap, floor))

    @property
    def _loop_s(self) -> float:
        """How long what is sent takes to be acknowledged: the round trip, and what both hosts wait."""
        return self._rtt_s + self._endpoint_delay_s + self._ack_wait_s

    @property
    def _enough_levels(self) -> int:
        """Fresh samples without which the window is not made smaller."""
        return START_SAMPLES if self._starting else len(self._levels) // 2

    def on_loss(self, *, now: float, lost_bytes: int, inflight_bytes: int, by_timeout: bool) -> None:
        """Remember when, for rule 6, and how much, for rule 7."""
        self._save(now=now)
        if not by_timeout:
            self._lost_at = now
        if now - self._lost_since > self._rtt_s:
            self._lost_since, self._lost_bytes = now, 0
        self._lost_bytes += lost_bytes
        flown_bytes = min(self.window_bytes, inflight_bytes + self._lost_bytes)
        if self._lost_bytes > COLLAPSE * flown_bytes and now - self._collapsed_at > self._rtt_s:
            self._collapse(now=now)

    def _collapse(self, *, now: float) -> None:
        """Set the window to what was delivered; halve it if that was nothing since it was last set so."""
        if self._nothing_delivered:
            window = max(self.window_bytes / 2, MIN_HALVED_PACKETS * self._packet_bytes)
        elif self._lost_bytes >= RESTART_PACKETS * self._packet_bytes:
            window = self._delivered_bytes
        else:
            return
        self._collapsed_at = self._decreased_at = now
        self._starting, self._nothing_delivered = False, True
        self.window_bytes = min(self.window_bytes, window)
        self._levels.clear()  # what they speak of was another window
        self._fresh_levels = 0

    @property
    def _delivered_bytes(self) -> float:
        """What was delivered in the last round trip, as a window."""
        return max(float(self._delivery.last_span_bytes), float(RESTART_PACKETS * self._packet_bytes))

    def _save(self, *, now: float) -> None:
        """Keep what `undo` goes back to: the window before the first of several blows."""
        if self._saved is None or now - self._saved.at > LOSS_MEMORY_RTTS * self._loop_s:
            self._saved = _Saved(now, self.window_bytes, self._starting, self._lost_at)

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
            window = min(window, self._delivered_bytes)
        self.window_bytes = max(window, MIN_WINDOW_PACKETS * self._packet_bytes)
        self._decreased_at = now
        self._fresh_levels = 0

    def on_all_paths_timeout(self, *, now: float) -> None:
        """Start again from two packets: nothing is known of a network that has not answered for several timeouts."""
        self._save(now=now)
        self._starting = True
        self._decreased_at = now
        self.window_bytes = min(self.window_bytes, 2.0 * self._packet_bytes)
        self._levels.clear()
        self._delivery = DeliveryRate()

    def on_spurious_loss(self) -> None:
        """Go on as before (Eifel, RFC 4015): a host that was stopped for a while says nothing of the network."""
        if self._saved is not None:
            self.window_bytes = max(self.window_bytes, self._saved.window_bytes)
            self._starting, self._lost_at = self._saved.starting, self._saved.lost_at
            self._saved = None


class _Saved(NamedTuple):
    """What the controller was at `at`, before what may have been no loss."""

    at: float
    window_bytes: float
    starting: bool
    lost_at: float
