"""Congestion control: how many bytes one peer may have in flight over all its paths (PROTOCOL.md, section 9).

SRD's published rule is that a connection slows down only when the round trip rises on the *majority* of its paths, or
when it delivers less than it sends (Shalev et al., IEEE Micro 40(6), 2020). `MajorityDelay` implements it with Swift's
AIMD (Kumar et al., SIGCOMM 2020) on an order statistic of recent samples of all paths, as arXiv:2509.07907 proposes for
Swift under packet spraying. Why each rule is as it is:

1. Samples. The delay of the receiving host counts above the initial window only: fewer packets would wait as long for
   the process, so the window would shrink to nothing. A path may not have seen an empty queue in the first second, and
   would take a standing queue for its base round trip, so that of all paths stands for it. A probe is short, arrives
   sooner than data, and is no sample. ECN marks show congestion before the delay does (DCTCP, RFC 8257).
2. Target. It grows as the window falls (Swift's flow scaling, section 3.2), so flows that see the same queue converge.
   On long paths jitter is what samples in a row differ by: a queue swings slowly, and a target that follows its swings
   fills every buffer. After the start phase it falls gradually, or the overshoot would count as congestion.
3. Level. Noise of hosts only adds to delays, so the median would be too high; the lower quartile takes three of four.
4. Growth is in part a fraction of the window, so that large ones recover as fast as small ones. What something else
   limits does not grow: such a window has not been tested against the network (RFC 7661).
5. Decrease: Swift's, and UET's quick adapt far above the target.
6. Loss alone is not a signal: packets are sent again on other paths. But a buffer may overflow before the delay reaches
   its target, so the window is bounded while packets are lost (SRD's "delivers less than it sends"). The delay of that
   bound includes both hosts, or the rate of a small window would confirm that window; without loss there is no bound,
   or slow hosts would keep a small window small.
7. Collapse. A queue that lets nothing through gives no samples, and what is retransmitted in one burst is lost again:
   so a loss of more than half, far above what occurs without congestion, sets the window to what was delivered.
8. A spurious loss is undone (RFC 3708, Eifel, RFC 4015).
9. A flow that fills the queue of a long path is met with its own rules: `competition`. A short path is left to it,
   since its delay may be that of busy hosts, and that of many flows like this one.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

from srd.proto.config import ProtocolConfig
from srd.proto.congestion.competition import Competition
from srd.proto.congestion.rate import DeliveryRate
from srd.proto.controller import Controller
from srd.proto.paths.rtt import LONG_RTT_S, WindowedMin

ADDITIVE_PACKETS: Final = 1.0
"""Growth per round trip near the target, in packets (Swift's ai)."""
PROPORTIONAL: Final = 1 / 32
"""Further growth per round trip without any queue, as a fraction of the window; more slows the convergence of flows."""
BETA: Final = 0.8
"""Strength of a decrease (Swift)."""
MAX_DECREASE: Final = 0.5
"""Largest fraction of the window that one decrease takes (Swift's max_mdf)."""
START_SAMPLES: Final = 8
"""Samples required to end the start phase (HyStart++, RFC 9406: N_RTT_SAMPLE), since growth is slow after it."""
START_LEVEL: Final = 0.5
"""Level from which the window does not double any more in the start phase."""
SLOW_START_LEVEL, SLOW_START_DELAY_S = 0.25, 0.004
"""Level, and queueing delay, from which the window grows more slowly in the start phase: an eighth of a long path's
round trip (HyStart++, RFC 9406: RTT / 8, but at least 4 ms, which host noise may be). What doubles until the target is
reached has two bandwidth-delay products in flight when the delay shows."""
CSS_GROWTH_DIVISOR: Final = 4
"""How much more slowly (RFC 9406, conservative slow start)."""
START_GAIN: Final = 3.0
"""The same as `INFLIGHT_GAIN` in the start phase of a long path, until delay shows: what was delivered in the last
round trip is half of what is in flight then, and a few random losses must not end the doubling (BBR's: 2.89)."""
QUICK_ADAPT_LEVEL: Final = 4.0
"""Level from which the window is set to what was delivered (UET NSCC: queueing delay above four targets)."""
HISTORY_SAMPLES: Final = 32
"""Largest number of samples that the quartile is taken of: more would delay the reaction and cost time to sort."""
INFLIGHT_GAIN: Final = 1.25
"""Largest window over the bandwidth-delay product under loss (BBR: 2); more loses more, 1 falls with every dead
link."""
LOSSY_TARGET: Final = 0.65
"""Part of the delay target that this bound adds to it: the buffers that overflow are smaller than the target."""
UNLIKE_BASES: Final = 1.1
"""Mean base round trip over the shortest from which paths are unlike: a window over the longer ones needs all of it."""
SCALING_RTTS: Final = 0.82
"""Flow scaling: the target of a window of one packet above that of a large window, in base round trips, times 0.9; more
converges faster, but is less fair among many senders, whose packets must fit into a buffer."""
SCALING_MAX_PACKETS: Final = 100.0
"""Window from which the target is not scaled (Swift's fs_max)."""
ECN_EXCESS: Final = 0.25
"""Level above the target of a report in which every packet was marked: more leaves links idle, 0 fills buffers."""
ENDPOINT_DELAY_WINDOW_S: Final = 0.1
"""A receiving host counts as slow if the ack delay stayed high during all of this time (CoDel's interval, RFC 8289): a
process that waited to be scheduled then reads everything that came, and fewer packets would not have waited less."""
JITTER_GAIN, LONG_JITTER_GAIN = 4.0, 8.0
"""Delay target over the mean deviation of round trips: RFC 6298 also takes four deviations for noise. On a long path
twice as much: where packets cannot overtake each other the delays of those in a row are alike."""
JITTERY_RTT_S, MAX_JITTER = 0.005, 0.5
"""Smallest round trip of a path whose jitter is that of its links rather than of the hosts, and is so added to the
target; and the most that is added, over the target without it. Where packets cannot overtake each other jitter is a
delay that all of them have on a busy path, and nobody on an idle one."""
DEVIATION_OF_DIFFERENCE: Final = math.sqrt(0.5)
"""Mean deviation of independent samples over the mean difference of two in a row."""
LONG_TARGET_RTTS, LONG_TARGET_S = 0.2, 0.004
"""Delay target on a long path after the start phase, in base round trips, and at least: others feel such a queue."""
SETTLING_RTTS: Final = 8
"""Round trips in which most of the way to that target is gone: with fewer the first decreases after the start take
capacity from a transfer of seconds, with more the queue of the start stays longer."""
LOSS_MEMORY_RTTS: Final = 16
"""Round trips after a loss for rule 6; losses within as many count as one for rule 8: a window is retransmitted in
less."""
COLLAPSE: Final = 0.5
"""Fraction of what was in flight that must be lost within a round trip for rule 7."""
RESTART_PACKETS: Final = 6
"""Smallest window that rule 7 and quick adapt leave at first, and smallest loss that rule 7 applies to at first: with
one or two packets in flight, a loss is found by timeout only."""
MIN_HALVED_PACKETS: Final = 0.25
"""Smallest window that halving without delivery leaves: more is unfair, less would slow the detection of a reduced
MTU."""
CHECKS_PER_RTT: Final = 4
"""Times per round trip that the start and end of the competition are looked for: a queue is empty for half of one."""
MIN_WINDOW_PACKETS: Final = 0.125
"""Smallest window: one packet in eight round trips."""


class MajorityDelay(Controller):
    """The default controller; see the module's theory of operation."""

    def __init__(self, config: ProtocolConfig, *, packet_bytes: int) -> None:
        self.window_bytes = float(config.initial_window_packets * packet_bytes)
        self._packet_bytes = packet_bytes
        self._config = config
        self._levels: list[float] = []
        self._fresh_levels = 0  # samples since the last decrease
        self._starting = True
        self._saved: _Saved | None = None
        self._decreased_at = 0.0
        self._lost_at = -math.inf
        self._collapsed_at = -math.inf
        self._lost_since, self._lost_bytes = -math.inf, 0  # losses of the current round trip
        self._nothing_delivered = False  # nothing was delivered since the last collapse
        self._rtt_s = config.initial_rtt_s
        self._jitter_s = 0.0  # smoothed deviation of round trips, over all paths
        self._last_queue_s = 0.0
        self._long_target_rtts = config.delay_target_rtts  # on a long path
        self._settle_at = 0.0  # when to lower it again
        self._base_s = 0.0  # smoothed base round trip of the paths, weighted by their reports
        self._target_base_s = 0.0  # the same of those whose targets apply
        self._endpoint_delay_s = 0.0  # smoothed ack delay of the receiving host
        self._min_endpoint_delay = WindowedMin()
        self._ack_wait_s = 0.0  # smoothed time that acks wait in this host before they are processed
        self._delivery = DeliveryRate()
        self._competition: Competition | None = None  # from the first sample of a long path on
        self._compete_at = 0.0  # when to look again whether to compete

    @property
    def pacing_gain(self) -> float:
        """Twice the window per round trip during the start phase (the window doubles), 1.25 times after it."""
        return 2.0 if self._starting else 1.25

    @property
    def level(self) -> float:
        """Lower quartile of the recent samples; 1 is at the target."""
        return _lower_quartile(self._levels)

    def on_sample(
        self,
        *,
        now: float,
        queue_s: float,
        endpoint_s: float,
        min_rtt_s: float,
        target_base_s: float,
        variation_s: float,
        ecn_fraction: float,
    ) -> None:
        """Add one sample of the level."""
        if min_rtt_s >= LONG_RTT_S:
            variation_s = DEVIATION_OF_DIFFERENCE * abs(queue_s - self._last_queue_s)
        self._last_queue_s = queue_s
        self._jitter_s += (variation_s - self._jitter_s) / 64
        self._min_endpoint_delay.observe(endpoint_s, now=now, window_s=ENDPOINT_DELAY_WINDOW_S)
        level = queue_s / self.target_s(target_base_s)
        if self.window_bytes > self._config.initial_window_packets * self._packet_bytes:
            level = max(level, self._min_endpoint_delay.min_s / self._config.endpoint_delay_target_s)
        if ecn_fraction:
            level = max(level, 1 + ECN_EXCESS * ecn_fraction)
        self._levels.append(level)
        self._endpoint_delay_s += (endpoint_s - self._endpoint_delay_s) / 16
        self._target_base_s += (target_base_s - self._target_base_s) / (16 if self._base_s else 1)
        self._base_s += (min_rtt_s - self._base_s) / (16 if self._base_s else 1)
        packets = self.window_bytes / self._packet_bytes
        kept = min(max(4, int(packets)), HISTORY_SAMPLES)
        del self._levels[: max(len(self._levels) - kept, 0)]
        if min_rtt_s >= LONG_RTT_S:
            if self._competition is None:
                self._competition = Competition(packet_bytes=self._packet_bytes)
            self._competition.on_sample(queue_s, kept=kept)
        if min_rtt_s < LONG_RTT_S or now - queue_s - min_rtt_s - endpoint_s >= self._decreased_at:
            self._fresh_levels += 1

    def target_s(self, min_rtt_s: float) -> float:
        """Target of the queueing delay: at least the measured noise, and more for small windows."""
        floor_s = self._config.min_delay_target_s
        least_s = max(self._config.delay_target_rtts * min_rtt_s, floor_s)
        noise_s = max(JITTER_GAIN * self._jitter_s, least_s)
        packets = self.window_bytes / self._packet_bytes
        # Bounded, since a queue's own swings add to the deviation; a window below one packet builds no queue.
        steady_s = min(noise_s, least_s + floor_s) if packets > 1 else noise_s
        if min_rtt_s >= LONG_RTT_S:
            settled_s = max(self._long_target_rtts * min_rtt_s, LONG_TARGET_S)
            steady_s = min(settled_s + LONG_JITTER_GAIN * self._jitter_s, (1 + MAX_JITTER) * least_s)
        elif min_rtt_s >= JITTERY_RTT_S:
            steady_s = least_s + min(JITTER_GAIN * self._jitter_s, MAX_JITTER * least_s)
        scale = 1 / math.sqrt(min(max(packets, 1.0), SCALING_MAX_PACKETS)) - 1 / math.sqrt(SCALING_MAX_PACKETS)
        return steady_s + SCALING_RTTS * min_rtt_s * scale

    def on_ack(self, *, now: float, acked_bytes: int, rtt_s: float, ack_wait_s: float, cwnd_limited: bool) -> None:
        """Grow or shrink the window, rules 4 to 6."""
        self._ack_wait_s += (ack_wait_s - self._ack_wait_s) / 16
        self._rtt_s, self._nothing_delivered = rtt_s, False
        self._delivery.on_ack(now=now, acked_bytes=acked_bytes, span_s=self._loop_s)
        if not self._starting and now >= self._settle_at:
            self._settle(now=now)
        level = self.level
        if (competition := self._competition) is not None:
            if now >= self._compete_at and competition.queues_s and not self._starting:
                self._compete(competition, now=now)
            if competition.is_on:
                if cwnd_limited:
                    self.window_bytes = competition.grown(self.window_bytes, acked_bytes=acked_bytes)
                return
        if level < 1:
            if cwnd_limited:
                self._grow(acked_bytes, level=level)
        elif now - self._decreased_at >= rtt_s and self._fresh_levels >= self._enough_levels:
            self._shrink(level, now=now)
        fastest = self._delivery.max_bytes_per_s
        if fastest and now - self._lost_at < LOSS_MEMORY_RTTS * self._loop_s:
            bdp_bytes = fastest * (self._base_s + self._endpoint_delay_s + self._ack_wait_s)
            doubles = self._starting and level < START_LEVEL and self._base_s >= LONG_RTT_S
            gain = START_GAIN if doubles else INFLIGHT_GAIN
            is_alike = self._base_s < UNLIKE_BASES * self._target_base_s
            queue_s = self.target_s(self._target_base_s) * (LOSSY_TARGET if is_alike else 1)
            cap = gain * bdp_bytes + fastest * queue_s
            floor = self._config.initial_window_packets * self._packet_bytes
            self.window_bytes = min(self.window_bytes, max(cap, floor))

    def _settle(self, *, now: float) -> None:
        """Lower the target of a long path, once a round trip, rule 2."""
        self._settle_at = now + self._rtt_s
        settled_rtts = min(LONG_TARGET_RTTS, self._config.delay_target_rtts)
        self._long_target_rtts += (settled_rtts - self._long_target_rtts) / SETTLING_RTTS

    def _compete(self, competition: Competition, *, now: float) -> None:
        """Begin or end the competition, rule 9."""
        config, base_s = self._config, self._base_s
        self._compete_at = now + self._rtt_s / CHECKS_PER_RTT
        self.window_bytes = competition.on_delay(
            queue_s=_lower_quartile(competition.queues_s),
            base_s=base_s,
            target_s=max(config.delay_target_rtts * base_s, config.min_delay_target_s),
            window_bytes=self.window_bytes,
            bytes_per_s=self._delivery.last_bytes_per_s,
            rtt_s=self._rtt_s,
            now=now,
        )

    @property
    def _loop_s(self) -> float:
        """Time from sending to acknowledgement: the round trip plus the delays in both hosts."""
        return self._rtt_s + self._endpoint_delay_s + self._ack_wait_s

    @property
    def _enough_levels(self) -> int:
        """Samples since the last change that a decrease requires."""
        return START_SAMPLES if self._starting else len(self._levels) // 2

    def on_loss(self, *, now: float, lost_bytes: int, inflight_bytes: int, by_timeout: bool) -> None:
        """Record the time of the loss for rule 6, and its size for rule 7."""
        if self._competition is not None and self._competition.is_on:
            self.window_bytes = self._competition.shrunk(self.window_bytes, rtt_s=self._loop_s, now=now)
            return
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
        """Set the window to what was delivered; halve it if nothing was delivered since it was last set so."""
        if self._nothing_delivered:
            window = max(self.window_bytes / 2, MIN_HALVED_PACKETS * self._packet_bytes)
        elif self._lost_bytes >= RESTART_PACKETS * self._packet_bytes:
            window = self._delivered_bytes
        else:
            return
        self._collapsed_at = self._decreased_at = now
        self._starting, self._nothing_delivered = False, True
        self.window_bytes = min(self.window_bytes, window)
        self._forget_samples()  # they were measured with another window
        self._fresh_levels = 0

    def _forget_samples(self) -> None:
        self._levels.clear()
        if self._competition is not None:
            self._competition.queues_s.clear()

    @property
    def _delivered_bytes(self) -> float:
        """What was delivered in the last round trip, as a window of at least `RESTART_PACKETS`."""
        return max(float(self._delivery.last_span_bytes), float(RESTART_PACKETS * self._packet_bytes))

    def _save(self, *, now: float) -> None:
        """Save the state that `on_spurious_loss` restores: the one before the first of several losses."""
        if self._saved is None or now - self._saved.at > LOSS_MEMORY_RTTS * self._loop_s:
            self._saved = _Saved(now, self.window_bytes, self._starting, self._lost_at)

    def _grow(self, acked_bytes: int, *, level: float) -> None:
        if self._starting and level < START_LEVEL:
            is_slow = level >= SLOW_START_LEVEL and level * self.target_s(self._base_s) >= SLOW_START_DELAY_S
            self.window_bytes += acked_bytes / CSS_GROWTH_DIVISOR if is_slow else acked_bytes
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
        """Restart with at most two packets: a network that has not answered for several timeouts is unknown."""
        self._save(now=now)
        self._starting = True
        self._long_target_rtts = self._config.delay_target_rtts
        self._decreased_at = now
        self.window_bytes = min(self.window_bytes, 2.0 * self._packet_bytes)
        self._forget_samples()
        self._delivery = DeliveryRate()

    def on_spurious_loss(self) -> None:
        """Restore the saved window (Eifel, RFC 4015): a host that was stopped for a while is no sign of congestion."""
        competes = self._competition is not None and self._competition.is_on
        if self._saved is not None and not competes:
            self.window_bytes = max(self.window_bytes, self._saved.window_bytes)
            self._starting, self._lost_at = self._saved.starting, self._saved.lost_at
            self._saved = None


def _lower_quartile(values: list[float]) -> float:
    ordered = sorted(values)
    return ordered[len(ordered) // 4] if ordered else 0.0


class _Saved(NamedTuple):
    """State of the controller at time `at`, before a loss that may prove spurious."""

    at: float
    window_bytes: float
    starting: bool
    lost_at: float
