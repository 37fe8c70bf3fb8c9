"""Swift as published (Kumar et al., SIGCOMM 2020), for comparison. Not the default.

Two windows, one for the delay of the fabric and one for that of the hosts, follow the same AIMD against a target each;
the smaller one applies.

1. The fabric's target is the base delay, a queue allowance, and flow scaling: a * 1/sqrt(window) + b, clamped, so that
   many flows with small windows accept more delay and converge (section 3.2 of the paper).
2. Below the target the window grows by `ai` packets per window of acknowledged packets. Above it, it shrinks by beta *
   (delay - target) / delay, at most by half, at most once a round trip.
3. Each sample is used as it comes. Under spraying that is its weakness: one congested path of many slows all of it down
   (arXiv:2509.07907). `MajorityDelay` differs in just that.
4. A window below one packet is paced: one packet in 1/window round trips (section 3.4). Above, acks are the clock.
5. ECN marks show congestion before the delay does: a report of which the fraction m was marked counts as a delay of at
   least 1 + m / 4 targets. This is not in the paper; it is what `MajorityDelay` does, for a fair comparison.
6. Losses found by reordering halve the window, at most once a round trip. Several timeouts of all paths in a row reset
   it.

Constants are those of htsim's Swift (sim/swift.cpp), which calls them guesses. The base delay is this project's own.
"""

from __future__ import annotations

import math

from srd.proto.config import ProtocolConfig
from srd.proto.congestion.base import Controller
from srd.proto.congestion.delay import ECN_EXCESS

ADDITIVE_PACKETS = 1.0
"""Growth per round trip below the target, in packets (ai)."""
BETA = 0.8
"""Strength of a decrease."""
MAX_DECREASE = 0.5
"""Largest fraction of the window that one decrease takes (max_mdf)."""
SCALING_RANGE = 5.0
"""Range of the flow scaling over the base target (fs_range)."""
SCALING_MIN_PACKETS = 0.1
"""Window below which flow scaling does not grow any more (fs_min)."""
SCALING_MAX_PACKETS = 100.0
"""Window above which there is no flow scaling (fs_max)."""
RESET_TIMEOUTS = 5
"""Timeouts of all paths in a row after which the window is reset to the smallest (RETX_RESET_THRESHOLD)."""
MIN_WINDOW_PACKETS = 0.001
"""Smallest window."""


class Swift(Controller):
    """Swift's controller; see the module's theory of operation."""

    def __init__(self, config: ProtocolConfig, *, packet_bytes: int) -> None:
        self.window_bytes = float(config.initial_window_packets * packet_bytes)
        self._packet_bytes = packet_bytes
        self._config = config
        self._fabric_packets = self._endpoint_packets = float(config.initial_window_packets)
        self._queue_s = self._endpoint_s = 0.0  # of the latest sample
        self._min_rtt_s = config.initial_rtt_s
        self._marked = 0.0
        self._rtt_s = config.initial_rtt_s
        self._decreased_at = -math.inf
        self._timeouts = 0

    @property
    def pacing_gain(self) -> float:
        """1 below a window of one packet; above, practically unpaced: the acks are the clock."""
        return 1.0 if self.window_bytes < self._packet_bytes else 100.0

    def fabric_target_s(self, min_rtt_s: float) -> float:
        """Target of the queueing delay for this window."""
        base_s = max(min_rtt_s / 2, self._config.min_delay_target_s)
        range_s = SCALING_RANGE * base_s
        alpha = range_s / (1 / math.sqrt(SCALING_MIN_PACKETS) - 1 / math.sqrt(SCALING_MAX_PACKETS))
        beta = -alpha / math.sqrt(SCALING_MAX_PACKETS)
        scaling_s = alpha / math.sqrt(max(self._fabric_packets, SCALING_MIN_PACKETS)) + beta
        return base_s + min(max(scaling_s, 0.0), range_s)

    def on_sample(
        self,
        *,
        now: float,  # noqa: ARG002 - the interface's: Swift counts acks
        queue_s: float,
        endpoint_s: float,
        min_rtt_s: float,
        target_base_s: float,  # noqa: ARG002 - the interface's: Swift has no other path's target
        variation_s: float,  # noqa: ARG002 - the interface's: Swift does not model noise
        ecn_fraction: float,
    ) -> None:
        """Save the latest delays and marks."""
        self._queue_s, self._endpoint_s, self._marked = queue_s, endpoint_s, ecn_fraction
        self._min_rtt_s = min_rtt_s

    def on_ack(
        self,
        *,
        now: float,
        acked_bytes: int,
        rtt_s: float,
        ack_wait_s: float,
        cwnd_limited: bool,  # noqa: ARG002 - the interface's: Swift grows whatever is the limit
    ) -> None:
        """Grow or shrink both windows."""
        self._rtt_s, self._timeouts = rtt_s, 0
        packets = acked_bytes / self._packet_bytes
        may_decrease = now - self._decreased_at >= rtt_s
        fabric, endpoint = self._fabric_packets, self._endpoint_packets
        targets_s = self.fabric_target_s(self._min_rtt_s), self._config.endpoint_delay_target_s
        queue_s = self._queue_s
        if self._marked:
            queue_s = max(queue_s, (1 + ECN_EXCESS * self._marked) * targets_s[0])
        self._fabric_packets = _step(fabric, queue_s, targets_s[0], acked=packets, may_decrease=may_decrease)
        self._endpoint_packets = _step(
            endpoint, self._endpoint_s + ack_wait_s, targets_s[1], acked=packets, may_decrease=may_decrease
        )
        if self._fabric_packets < fabric or self._endpoint_packets < endpoint:
            self._decreased_at = now
        self._apply()

    def on_loss(
        self,
        *,
        now: float,
        lost_bytes: int,  # noqa: ARG002 - the interface's: Swift counts a hole once, whatever its size
        inflight_bytes: int,  # noqa: ARG002 - as above
        by_timeout: bool,
    ) -> None:
        """Halve, once a round trip; `on_all_paths_timeout` handles losses by timeout."""
        if not by_timeout:
            self._halve(now=now)

    def _halve(self, *, now: float) -> None:
        if now - self._decreased_at >= self._rtt_s:
            self._fabric_packets *= 1 - MAX_DECREASE
            self._decreased_at = now
            self._apply()

    def on_all_paths_timeout(self, *, now: float) -> None:
        """Halve; after several in a row reset the window to the smallest."""
        self._timeouts += 1
        if self._timeouts >= RESET_TIMEOUTS:
            self._fabric_packets = MIN_WINDOW_PACKETS
            self._apply()
        else:
            self._halve(now=now)

    def on_spurious_loss(self) -> None:
        """Ignore it: the paper restores no window."""

    def _apply(self) -> None:
        # Bound the larger window by the smaller one: it would be meaningless when it becomes the smaller.
        least = min(self._fabric_packets, self._endpoint_packets)
        self._fabric_packets = max(min(self._fabric_packets, 2 * least + 1), MIN_WINDOW_PACKETS)
        self._endpoint_packets = max(min(self._endpoint_packets, 2 * least + 1), MIN_WINDOW_PACKETS)
        self.window_bytes = max(least, MIN_WINDOW_PACKETS) * self._packet_bytes


def _step(packets: float, delay_s: float, target_s: float, *, acked: float, may_decrease: bool) -> float:
    """Return a window after an ack of `acked` packets that reports `delay_s`."""
    if delay_s < target_s:
        return packets + ADDITIVE_PACKETS * acked / max(packets, 1.0)
    if not may_decrease:
        return packets
    return packets * max(1 - BETA * (delay_s - target_s) / delay_s, 1 - MAX_DECREASE)
