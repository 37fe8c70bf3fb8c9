"""Competition: whether a flow that fills the queue shares the bottleneck, and the window of a flow that competes.

Theory of operation. A controller that follows the delay leaves the bottleneck to any flow that goes on until packets
are lost, as TCP does; and once the smallest delay that it remembers has such a queue in it, it takes the queue for the
path and pushes TCP out instead. So there are two modes (Copa, Arun and Balakrishnan, NSDI 2018; Nimbus, SIGCOMM 2022).

1. A queue that is ours shrinks when the window does. Competition begins when the lower quartile of the queueing delay
   stayed above `LOW` of the target for `HIGH_RTTS` round trips, though the window is less than a third and the rate is
   less than half of the largest ones of the last seconds. Jitter is a delay that does not shrink either, but it takes
   no rate away: the window may be small beside the overshoot of the start, the rate is not. Several flows of ours that
   start together may look like a competition for a while; rule 3 ends it.
2. While it lasts the window grows by `GROWTH_PACKETS` a round trip, and a loss halves it, at most once a round trip
   (Reno, RFC 5681, which grows by one: a CUBIC flow of the same round trip gets about twice as much as that). It begins
   with the window for half of that largest rate. Losses alone do not begin the competition: random ones are not
   congestion.
3. It ends when the queue is nearly empty: flows that compete with themselves alone halve their windows, and drain it.
4. The smallest round trip is that of before the competition, since the queue of a competitor may never be empty within
   the time for which the smallest one is remembered.
"""

from __future__ import annotations

import math
from typing import Final

from srd.proto.paths.rtt import WindowedMin

LOW: Final = 0.5
"""Queueing delay, over the target of a large window, below which nobody fills the queue."""
EMPTY: Final = 0.2
"""The same for a queue that is nearly empty: a tenth of the base round trip with the default target (Copa, section
2.3)."""
HIGH_RTTS: Final = 16
"""Round trips for which the delay must stay high: a window shrinks to a third in a few, if that helps."""
SHRUNK: Final = 3.0
"""How many times smaller the window must have become."""
LOST_RATE: Final = 2.0
"""How many times smaller the rate must have become. With three TCP's shares beside this mode are larger."""
GROWTH_PACKETS: Final = 2.0
"""Growth per round trip: with one, one flow of CUBIC beside it gets 1.45 of its fair half."""
RENO_DECREASE: Final = 0.5
"""What a loss leaves of the window."""


class Competition:
    """The mode of one peer's controller: `is_on` while it competes."""

    __slots__ = ("_base_s", "_decreased_at", "_high_since", "_packet_bytes", "_rates", "_windows", "is_on", "queues_s")

    def __init__(self, *, packet_bytes: int) -> None:
        self.is_on = False
        self.queues_s: list[float] = []
        """Recent queueing delays of long paths."""
        self._packet_bytes = packet_bytes
        self._base_s = 0.0  # base round trip before the competition
        self._windows = WindowedMin()  # of the negated window: its largest of the last seconds
        self._rates = WindowedMin()  # the same of the rate
        self._high_since = math.inf
        self._decreased_at = -math.inf

    def on_sample(self, queue_s: float, *, kept: int) -> None:
        """Add one sample of the queueing delay; the last `kept` ones stay."""
        self.queues_s.append(queue_s)
        del self.queues_s[: max(len(self.queues_s) - kept, 0)]

    def on_delay(
        self,
        *,
        queue_s: float,
        base_s: float,
        target_s: float,
        window_bytes: float,
        bytes_per_s: float,
        rtt_s: float,
        now: float,
    ) -> float:
        """Take the queueing delay over all paths; begin or end the competition; return the window.

        `base_s` is the base round trip that the delay was measured against, `target_s` the target of a large window,
        `bytes_per_s` what was delivered in the last round trip.
        """
        self._windows.observe(-window_bytes, now=now)
        self._rates.observe(-bytes_per_s, now=now)
        if self.is_on:
            if queue_s + base_s - self._base_s < EMPTY * target_s:
                self.is_on, self._high_since = False, math.inf
        elif queue_s < LOW * target_s:
            self._high_since = math.inf
        elif self._high_since == math.inf:
            self._high_since = now
        elif now - self._high_since >= HIGH_RTTS * rtt_s:
            best_bytes_per_s = -self._rates.min_s
            if SHRUNK * window_bytes < -self._windows.min_s and LOST_RATE * bytes_per_s < best_bytes_per_s:
                self.is_on, self._base_s = True, base_s
                return best_bytes_per_s * rtt_s / 2
        return window_bytes

    def grown(self, window_bytes: float, *, acked_bytes: int) -> float:
        """Return the window after `acked_bytes` were acknowledged."""
        return window_bytes + GROWTH_PACKETS * self._packet_bytes * acked_bytes / max(window_bytes, self._packet_bytes)

    def shrunk(self, window_bytes: float, *, rtt_s: float, now: float) -> float:
        """Return the window after a loss."""
        if now - self._decreased_at < rtt_s:
            return window_bytes
        self._decreased_at = now
        return max(window_bytes * RENO_DECREASE, 2.0 * self._packet_bytes)
