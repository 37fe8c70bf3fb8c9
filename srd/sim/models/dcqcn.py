"""DCQCN: the sending rate of RoCEv2's flows.

Zhu et al., "Congestion Control for Large-Scale RDMA Deployments", SIGCOMM 2015, section 3. The congestion point is RED
in the switch (netns/backends/virtual/lossless/profile.py).

Reaction point (section 3.1, figure 7). A notification cuts the rate: R_T = R_C, R_C = R_C (1 - alpha / 2), alpha =
(1 - g) alpha + g. Without one for K, alpha = (1 - g) alpha, again after each K. The rate rises with a timer and a byte
counter, each of which counts its events: both below F: fast recovery, R_C = (R_T + R_C) / 2; both above: hyper increase
of R_T, else additive increase, and the same average. A cut starts both again.

Notification point (section 3.2): one notification a flow in N at most, at once for the first mark.

`FirmwareRate` is the same as network cards have it by default (NVIDIA's description of the parameters, and HPCC's
simulator, which has their values): alpha is updated every period, by whether a notification came in it; a cut is
decided every monitor period; the target is left alone by a cut that follows another without an increase between; the
timer alone raises the rate, and the first rise is the only fast recovery.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from srd.sim.models.flow import NEVER_NS, FlowRate

PAPER_BPS: Final = 40e9
"""The paper's rate; R_AI, R_HAI and the marking thresholds are scaled from it to the link's."""

FIRMWARE_BPS: Final = 25e9
"""The rate for which HPCC's runs have the cards' values."""


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
    """R_HAI, ten times R_AI as in QCN; the paper's deployment does not say, its authors' simulator has half of it."""
    floor_bps: float = 1e6
    """Mellanox' `rpg_min_rate`; the paper has none."""

    def rate(self, line_bps: float) -> FlowRate:
        """Return the rate of a flow."""
        return DcqcnRate(line_bps, self)


class DcqcnRate(FlowRate):
    """The reaction point of one flow. It starts at line rate."""

    def __init__(self, line_bps: float, config: DcqcnConfig | None = None) -> None:
        super().__init__(line_bps)
        self.alpha = 1.0
        self.target_bps = line_bps
        self._config = config or DcqcnConfig()
        self._alpha_ns = round(self._config.alpha_period_us * 1000)
        self._timer_ns = round(self._config.timer_us * 1000)
        self._alpha_at = self._timer_at = NEVER_NS  # nothing to recover from before the first cut
        self._timer_events = self._byte_events = self._bytes = 0

    def advance(self, now_ns: int) -> int:
        """Let the timers fire that are due, in their order; return when the next rise is due."""
        while (at_ns := min(self._alpha_at, self._timer_at)) <= now_ns:
            if self._alpha_at == at_ns:
                self.alpha *= 1 - self._config.g
                self._alpha_at += self._alpha_ns
            else:
                self._timer_events += 1
                self._timer_at += self._timer_ns
                self._increase()
        return self._timer_at

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
            self.target_bps += steps * config.hyper * self.line_bps
        elif max(self._timer_events, self._byte_events) >= fast:
            self.target_bps += config.additive * self.line_bps
        self.target_bps = min(self.target_bps, self.line_bps)
        self.bps = (self.target_bps + self.bps) / 2


@dataclass(frozen=True, slots=True)
class FirmwareConfig:
    """Defaults of ConnectX's firmware (mlxconfig), named as there. R_AI and R_HAI are for 25 Gbit/s, and are scaled."""

    g: float = 5 / 1024
    """1 - `dce_tcp_g` / 1024."""
    alpha_period_us: float = 1.0
    """`dce_tcp_rtt`."""
    notification_interval_us: float = 4.0
    """`min_time_between_cnps`."""
    monitor_period_us: float = 4.0
    """`rate_reduce_monitor_period`."""
    timer_us: float = 300.0
    """`rpg_time_reset`."""
    fast_recoveries: int = 1
    """`rpg_threshold`."""
    additive: float = 5e6 / FIRMWARE_BPS
    """`rpg_ai_rate`."""
    hyper: float = 50e6 / FIRMWARE_BPS
    """`rpg_hai_rate`."""
    floor_bps: float = 100e6
    """The smaller one in HPCC's runs; `rpg_min_rate` itself is 1 Mbit/s."""

    def rate(self, line_bps: float) -> FlowRate:
        """Return the rate of a flow."""
        return FirmwareRate(line_bps, self)


class FirmwareRate(FlowRate):
    """The reaction point as cards have it; it starts at line rate."""

    def __init__(self, line_bps: float, config: FirmwareConfig | None = None) -> None:
        super().__init__(line_bps)
        self.alpha = 1.0
        self.target_bps = line_bps
        self._config = config or FirmwareConfig()
        self._alpha_ns = round(self._config.alpha_period_us * 1000)
        self._monitor_ns = round(self._config.monitor_period_us * 1000)
        self._timer_ns = round(self._config.timer_us * 1000)
        self._alpha_at = self._monitor_at = self._timer_at = NEVER_NS
        self._notified_alpha = self._notified_monitor = False
        self._rises = 0
        """Since the last cut."""

    def advance(self, now_ns: int) -> int:
        """Let the periods end that are over, in their order; return when the next rise is due."""
        while (at_ns := min(self._alpha_at, self._monitor_at, self._timer_at)) <= now_ns:
            if self._alpha_at == at_ns:
                self._update_alpha()
            elif self._monitor_at == at_ns:
                self._monitor_at += self._monitor_ns
                if self._notified_monitor:
                    self._cut(at_ns)
            else:
                self._timer_at += self._timer_ns
                self._rise()
        return self._timer_at

    def _update_alpha(self) -> None:
        self._alpha_at += self._alpha_ns
        self.alpha = (1 - self._config.g) * self.alpha + (self._config.g if self._notified_alpha else 0.0)
        self._notified_alpha = False

    def handle_congestion(self, now_ns: int) -> None:
        """Take note for the two periods; the first notification of all starts them, and cuts."""
        self.advance(now_ns)
        if self._alpha_at == NEVER_NS:
            self._alpha_at, self._monitor_at = now_ns + self._alpha_ns, now_ns + self._monitor_ns
            self._cut(now_ns)
            return
        self._notified_alpha = self._notified_monitor = True

    def _cut(self, now_ns: int) -> None:
        if self._rises or self._timer_at == NEVER_NS:
            self.target_bps = self.bps
        self.bps = max(self.bps * (1 - self.alpha / 2), self._config.floor_bps)
        self._rises, self._timer_at = 0, now_ns + self._timer_ns
        self._notified_monitor = False

    def _rise(self) -> None:
        self._rises += 1
        beyond = self._rises - self._config.fast_recoveries
        if beyond > 0:
            step = self._config.hyper if beyond > 1 else self._config.additive
            self.target_bps = min(self.target_bps + step * self.line_bps, self.line_bps)
        self.bps = (self.target_bps + self.bps) / 2


class Notifications:
    """The notification point of one flow."""

    def __init__(self, interval_us: float) -> None:
        """`interval_us` is N."""
        self._interval_ns = round(interval_us * 1000)
        self._next_at = 0

    def due(self, now_ns: int) -> bool:
        """Whether the packet that arrived marked now calls for a notification; then it is taken as sent."""
        if now_ns < self._next_at:
            return False
        self._next_at = now_ns + self._interval_ns
        return True
