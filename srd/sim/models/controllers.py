"""Congestion controllers of TCP as models: CUBIC (RFC 9438), BBR (version 1), DCTCP (RFC 8257).

They count in full packets. `tcp.TcpFlowSender` tells them what happened: one call for each packet that was
acknowledged, one for each loss event (the first loss of a window), one for a timeout.

CUBIC ends its slow start by HyStart++'s delay test (RFC 9406), without the phase of conservative slow start. BBR is
that of Cardwell et al., ACM Queue 14(5), 2016: four states, a windowed maximum of the delivery rate over ten round
trips, a windowed minimum of the round trip over ten seconds; losses are no signal.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

INITIAL_PACKETS: Final = 10
"""RFC 6928."""
MIN_PACKETS: Final = 2


@dataclass(frozen=True, slots=True)
class Acked:
    """What an acknowledgement of one packet tells. Times are in seconds, rates in packets per second."""

    now: float
    rtt_s: float
    rate: float
    """Delivery rate since the packet was sent; 0: unknown."""
    inflight: int
    is_new_round: bool
    """Whether the packet was sent after the last round began to be acknowledged: a round trip has passed."""
    marked: bool = False
    """Whether it arrived with CE."""


class TcpController(ABC):
    """Window and pacing rate of one TCP sender."""

    def __init__(self) -> None:
        self.window = float(INITIAL_PACKETS)
        self.pacing_rate = math.inf
        """Packets per second; infinite: the acknowledgements are the clock."""

    @abstractmethod
    def on_ack(self, acked: Acked) -> None:
        """Take the acknowledgement of one packet."""

    @abstractmethod
    def on_loss(self, *, now: float) -> None:
        """Take a loss event."""

    def on_timeout(self) -> None:
        """Take a retransmission timeout."""
        self.on_loss(now=0.0)
        self.window = 1.0


class CubicController(TcpController):
    """RFC 9438, sections 4.2 to 4.7; its variables have the RFC's names."""

    C: Final = 0.4
    BETA: Final = 0.7
    ALPHA: Final = 3 * (1 - BETA) / (1 + BETA)
    MIN_ETA_S: Final = 0.004
    MAX_ETA_S: Final = 0.016
    ROUND_SAMPLES: Final = 8

    def __init__(self) -> None:
        super().__init__()
        self._ssthresh = math.inf
        self._w_max = self._w_est = self._cwnd_prior = 0.0
        self._k = self._epoch_at = 0.0
        self._in_epoch = False
        self._last_round_s = self._round_s = math.inf  # smallest round trips of the last round and of this one
        self._samples = 0

    def on_ack(self, acked: Acked) -> None:
        """Grow by slow start, or towards the cubic function of the time since the last loss."""
        if self.window < self._ssthresh:
            self._slow_start(acked)
            return
        if not self._in_epoch:
            self._begin_epoch(acked.now)
        elapsed_s = acked.now - self._epoch_at + acked.rtt_s
        target = min(max(self.C * (elapsed_s - self._k) ** 3 + self._w_max, self.window), 1.5 * self.window)
        self._w_est += (self.ALPHA if self._w_est < self._cwnd_prior else 1.0) / self.window
        self.window = max(self.window + (target - self.window) / self.window, self._w_est)

    def _slow_start(self, acked: Acked) -> None:
        if acked.is_new_round:
            self._last_round_s, self._round_s, self._samples = self._round_s, math.inf, 0
        self._round_s = min(self._round_s, acked.rtt_s)
        self._samples += 1
        self.window += 1
        eta_s = min(max(self._last_round_s / 8, self.MIN_ETA_S), self.MAX_ETA_S)
        if self._samples >= self.ROUND_SAMPLES and self._round_s >= self._last_round_s + eta_s:
            self._ssthresh = self._w_max = self.window

    def _begin_epoch(self, now: float) -> None:
        self._in_epoch, self._epoch_at = True, now
        self._w_max = max(self._w_max, self.window)
        self._k = math.cbrt((self._w_max - self.window) / self.C)
        self._w_est = self.window

    def on_loss(self, *, now: float) -> None:
        """Shrink to seven tenths; with fast convergence."""
        del now
        self._cwnd_prior = self.window
        self._w_max = self.window * (1 + self.BETA) / 2 if self.window < self._w_max else self.window
        self.window = self._ssthresh = max(self.window * self.BETA, MIN_PACKETS)
        self._in_epoch = False


class BbrState(Enum):
    """States of BBR."""

    STARTUP = auto()
    DRAIN = auto()
    PROBE_BW = auto()
    PROBE_RTT = auto()


class BbrController(TcpController):
    """BBR, version 1."""

    HIGH_GAIN: Final = 2 / math.log(2)
    CYCLE: Final = (1.25, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0)
    WINDOW_ROUNDS: Final = 10
    MIN_RTT_WINDOW_S: Final = 10.0
    PROBE_RTT_S: Final = 0.2
    PROBE_RTT_PACKETS: Final = 4

    def __init__(self) -> None:
        super().__init__()
        self._state = BbrState.STARTUP
        self._rates: dict[int, float] = {}  # largest of each round
        self._round = 0
        self._min_rtt_s, self._min_rtt_at = math.inf, 0.0
        self._full_rate, self._full_rounds = 0.0, 0
        self._phase, self._phase_at = 2, 0.0
        self._probe_rtt_until = 0.0

    @property
    def _max_rate(self) -> float:
        return max(self._rates.values(), default=0.0)

    def on_ack(self, acked: Acked) -> None:
        """Follow rate and round trip; change the state; set pacing rate and window."""
        if acked.is_new_round:
            self._round += 1
            self._rates = {at: rate for at, rate in self._rates.items() if at > self._round - self.WINDOW_ROUNDS}
        self._rates[self._round] = max(self._rates.get(self._round, 0.0), acked.rate)
        is_old = acked.now - self._min_rtt_at > self.MIN_RTT_WINDOW_S
        if acked.rtt_s <= self._min_rtt_s or is_old:
            self._min_rtt_s, self._min_rtt_at = acked.rtt_s, acked.now
        if is_old and self._state is not BbrState.PROBE_RTT:
            self._state, self._probe_rtt_until = BbrState.PROBE_RTT, acked.now + self.PROBE_RTT_S
        self._change_state(acked)
        self._set_limits()

    def _change_state(self, acked: Acked) -> None:
        bdp = self._max_rate * self._min_rtt_s
        if self._state is BbrState.STARTUP and acked.is_new_round:
            if self._max_rate >= 1.25 * self._full_rate:
                self._full_rate, self._full_rounds = self._max_rate, 0
            else:
                self._full_rounds += 1
                if self._full_rounds >= 3:
                    self._state = BbrState.DRAIN
        elif self._state is BbrState.DRAIN:
            if acked.inflight <= bdp:
                self._state, self._phase, self._phase_at = BbrState.PROBE_BW, 2, acked.now
        elif self._state is BbrState.PROBE_BW:
            gain, is_over = self.CYCLE[self._phase], acked.now - self._phase_at > self._min_rtt_s
            if (is_over and (gain <= 1 or acked.inflight >= gain * bdp)) or (gain < 1 and acked.inflight <= bdp):
                self._phase, self._phase_at = (self._phase + 1) % len(self.CYCLE), acked.now
        elif self._state is BbrState.PROBE_RTT and acked.now >= self._probe_rtt_until:
            self._min_rtt_at = acked.now
            self._state = BbrState.PROBE_BW if self._full_rounds >= 3 else BbrState.STARTUP
            self._phase_at = acked.now

    def _set_limits(self) -> None:
        gains = {BbrState.STARTUP: self.HIGH_GAIN, BbrState.DRAIN: 1 / self.HIGH_GAIN, BbrState.PROBE_RTT: 1.0}
        pacing_gain = gains.get(self._state, self.CYCLE[self._phase])
        rate = self._max_rate or INITIAL_PACKETS / self._min_rtt_s
        self.pacing_rate = pacing_gain * rate
        window_gain = 2.0 if self._state is BbrState.PROBE_BW else self.HIGH_GAIN
        self.window = max(window_gain * rate * self._min_rtt_s, self.PROBE_RTT_PACKETS)
        if self._state is BbrState.PROBE_RTT:
            self.window = float(self.PROBE_RTT_PACKETS)

    def on_loss(self, *, now: float) -> None:
        """Ignore it."""


class DctcpController(TcpController):
    """RFC 8257, section 3.3; alpha starts at 1, as in Linux."""

    G: Final = 1 / 16

    def __init__(self) -> None:
        super().__init__()
        self.alpha = 1.0
        self._ssthresh = math.inf
        self._acked = self._marked = 0  # packets of this round

    def on_ack(self, acked: Acked) -> None:
        """Grow as Reno does; at the end of a round with marks, shrink by alpha / 2."""
        self._acked += 1
        if acked.marked:
            self._marked += 1
            self._ssthresh = min(self._ssthresh, self.window)
        if acked.is_new_round:
            self._end_round()
        self.window += 1 if self.window < self._ssthresh else 1 / self.window

    def _end_round(self) -> None:
        self.alpha = (1 - self.G) * self.alpha + self.G * self._marked / self._acked
        if self._marked:
            self.window = self._ssthresh = max(self.window * (1 - self.alpha / 2), MIN_PACKETS)
        self._acked = self._marked = 0

    def on_loss(self, *, now: float) -> None:
        """Halve the window."""
        del now
        self.window = self._ssthresh = max(self.window / 2, MIN_PACKETS)


CONTROLLERS: Final[dict[str, Callable[[], TcpController]]] = {
    "cubic": CubicController,
    "bbr": BbrController,
    "dctcp": DctcpController,
}
