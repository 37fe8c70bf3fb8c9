"""DCQCN: the sending rate of RoCEv2's flows (Zhu et al., "Congestion Control for Large-Scale RDMA Deployments",
SIGCOMM 2015, section 3). The congestion point is RED in the switch (netns/backends/virtual/lossless/profile.py).

Reaction point (section 3.1, figure 7). A notification cuts the rate: R_T = R_C, R_C = R_C (1 - alpha / 2), alpha =
(1 - g) alpha + g. Without one for K, alpha = (1 - g) alpha, again after each K. The rate rises with a timer and a byte
counter, each of which counts its events: both below F: fast recovery, R_C = (R_T + R_C) / 2; both above: hyper increase
of R_T, else additive increase, and the same average. A cut starts both again.

Notification point (section 3.2): one notification a flow in N at most, at once for the first mark.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from srd.sim.models.flow import NEVER_NS, NS_PER_S, Rate

PAPER_BPS: Final = 40e9
"""The paper's rate; R_AI, R_HAI and the marking thresholds are scaled from it to the link's."""


@dataclass(frozen=True, slots=True)
class DcqcnConfig:
    """The paper's values (section 5.2 and figure 14)."""

    g: float = 1 / 256
    alpha_period_us: float = 55.0
    """K."""
    notification_interval_us: float = 50.0
    """N."""
    timer_us: float = 55.0
    """T."""
    byte_counter_bytes: int = 10_000_000
    """B."""
    fast_recoveries: int = 5
    """F."""
    additive: float = 40e6 / PAPER_BPS
    """R_AI, as a part of the line rate."""
    hyper: float = 400e6 / PAPER_BPS
    """R_HAI, ten times R_AI as in QCN; the paper's deployment does not say."""
    floor_bps: float = 1e6
    """Mellanox' `rpg_min_rate`; the paper has none."""


class DcqcnRate(Rate):
    """The reaction point of one flow. It starts at line rate."""

    def __init__(self, line_bps: float, config: DcqcnConfig | None = None) -> None:
        super().__init__(line_bps)
        self.alpha = 1.0
        self.target_bps = line_bps
        self._line_bps = line_bps
        self._config = config or DcqcnConfig()
        self._alpha_ns = round(self._config.alpha_period_us * 1000)
        self._timer_ns = round(self._config.timer_us * 1000)
        self._alpha_at = self._timer_at = NEVER_NS  # nothing to recover from before the first cut
        self._timer_events = self._byte_events = self._bytes = 0

    def advance(self, now_ns: int) -> None:
        """Let the timers fire that are due, in their order."""
        while (at_ns := min(self._alpha_at, self._timer_at)) <= now_ns:
            if self._alpha_at == at_ns:
                self.alpha *= 1 - self._config.g
                self._alpha_at += self._alpha_ns
            else:
                self._timer_events += 1
                self._timer_at += self._timer_ns
                self._increase()

    def handle_sent(self, length_bytes: int, now_ns: int) -> None:
        """Count bytes; each B of them is an increase event."""
        self.advance(now_ns)
        if self._timer_at == NEVER_NS:
            return
        self._bytes += length_bytes
        if self._bytes >= self._config.byte_counter_bytes:
            self._bytes -= self._config.byte_counter_bytes
            self._byte_events += 1
            self._increase()

    def handle_congestion(self, now_ns: int) -> None:
        """Cut the rate."""
        self.advance(now_ns)
        g = self._config.g
        self.target_bps = self.bps
        self.bps = max(self.bps * (1 - self.alpha / 2), self._config.floor_bps)
        self.alpha = (1 - g) * self.alpha + g
        self._timer_events = self._byte_events = self._bytes = 0
        self._alpha_at, self._timer_at = now_ns + self._alpha_ns, now_ns + self._timer_ns

    def _increase(self) -> None:
        config, fast = self._config, self._config.fast_recoveries
        if min(self._timer_events, self._byte_events) > fast:
            steps = min(self._timer_events, self._byte_events) - fast
            self.target_bps += steps * config.hyper * self._line_bps
        elif max(self._timer_events, self._byte_events) >= fast:
            self.target_bps += config.additive * self._line_bps
        self.target_bps = min(self.target_bps, self._line_bps)
        self.bps = (self.target_bps + self.bps) / 2


class Notifications:
    """The notification point of one flow."""

    def __init__(self, config: DcqcnConfig | None = None) -> None:
        self._interval_ns = round((config or DcqcnConfig()).notification_interval_us * NS_PER_S / 1e6)
        self._next_at = 0

    def due(self, now_ns: int) -> bool:
        """Whether the packet that arrived marked now calls for a notification; then it is taken as sent."""
        if now_ns < self._next_at:
            return False
        self._next_at = now_ns + self._interval_ns
        return True
