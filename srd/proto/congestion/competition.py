"""Competition: whether a flow that fills the queue shares the bottleneck, and the window of a flow that competes.

Theory of operation. A controller that follows the delay leaves the bottleneck to any flow that goes on until packets
are lost, as TCP does; and once the smallest delay that it remembers has such a queue in it, it takes the queue for the
path and pushes TCP out instead. So there are two modes (Copa, Arun and Balakrishnan, NSDI 2018; Nimbus, SIGCOMM 2022).

1. A queue that is ours shrinks when the window does. Competition begins when the lower quartile of the queueing delay
   stayed above `LOW` of the target for `HIGH_RTTS` round trips, though the window has shrunk to a third meanwhile.
   Several flows of ours that start together may look like this for a while; they find out by rule 3.
2. While it lasts the window follows Reno (RFC 5681): a packet more each round trip, half of it after a loss, at most
   once a round trip. It begins with half of what it was before it shrank. Losses alone do not begin the competition:
   where the queue is short they are random.
3. It ends when the queue is nearly empty: a flow that competes with itself alone halves its window, and drains it.
4. The smallest round trip is that of before the competition, since the queue of a competitor may never be empty within
   the time for which the smallest one is remembered.
"""

from __future__ import annotations

import math

LOW = 0.5
"""Queueing delay, over the target of a large window, below which nobody fills the queue."""
EMPTY = 0.2
"""The same for a queue that is nearly empty: a tenth of the base round trip with the default target (Copa, section
2.3)."""
HIGH_RTTS = 16
"""Round trips for which the delay must stay high: a window shrinks to a third in a few, if that helps."""
MIN_HIGH_S = 0.25
"""Smallest time for which it must stay high: where round trips are short many senders may fill a queue for as long."""
SHRUNK = 1 / 3
"""What a window must have shrunk to."""
GROWTH_PACKETS = 2.0
"""Growth per round trip."""
RENO_DECREASE = 0.5
"""What a loss leaves of the window."""


class Competition:
    """The mode of one peer's controller: `is_on` while it competes."""

    __slots__ = ("_base_s", "_decreased_at", "_high_since", "_high_window_bytes", "_packet_bytes", "is_on")

    def __init__(self, *, packet_bytes: int) -> None:
        self.is_on = False
        self._packet_bytes = packet_bytes
        self._base_s = 0.0  # base round trip before the competition
        self._high_since = math.inf
        self._high_window_bytes = 0.0  # the window then
        self._decreased_at = -math.inf

    def on_delay(
        self, *, queue_s: float, base_s: float, target_s: float, window_bytes: float, rtt_s: float, now: float
    ) -> float:
        """Take the queueing delay over all paths; begin or end the competition; return the window.

        `base_s` is the base round trip that the delay was measured against, `target_s` the target of a large window.
        """
        if self.is_on:
            if queue_s + base_s - self._base_s < EMPTY * target_s:
                self.is_on, self._high_since = False, math.inf
            return window_bytes
        if queue_s < LOW * target_s:
            self._high_since = math.inf
        elif self._high_since == math.inf:
            self._high_since, self._high_window_bytes = now, window_bytes
        else:
            self._high_window_bytes = max(self._high_window_bytes, window_bytes)
            is_long = now - self._high_since >= max(HIGH_RTTS * rtt_s, MIN_HIGH_S)
            if is_long and window_bytes < SHRUNK * self._high_window_bytes:
                self.is_on, self._base_s = True, base_s
                return max(window_bytes, self._high_window_bytes / 2)
        return window_bytes

    def grown(self, window_bytes: float, *, acked_bytes: int) -> float:
        """Return the window after `acked_bytes` were acknowledged."""
        return window_bytes + GROWTH_PACKETS * self._packet_bytes * acked_bytes / max(window_bytes, float(self._packet_bytes))

    def shrunk(self, window_bytes: float, *, rtt_s: float, now: float) -> float:
        """Return the window after a loss."""
        if now - self._decreased_at < rtt_s:
            return window_bytes
        self._decreased_at = now
        return max(window_bytes * RENO_DECREASE, 2.0 * self._packet_bytes)
