"""Queueing delay on the way there, from the clocks of both hosts, free of the way back and of the clocks' offset.

Theory of operation. A report comes back over any path, so the round trip of a short path may contain the way back of a
long one. A path report therefore carries the time at which the receiver's kernel received the echoed packet, by the
receiver's clock. The way there is that time less the sending time, plus the unknown offset of the clocks. Queueing on
the way there is the way there less its windowed minimum on that path: the offset cancels (LEDBAT, RFC 6817).

1. Wrap-around. Times are microseconds modulo 2^32. The first sample is the origin of the differences, which are taken
   modulo 2^32 and signed, so that a clock may wrap between any two samples.
2. Drift. A receiver's clock that is slow makes each way there look shorter, and the minimum follows at once. One that
   is fast makes it look longer, like a queue that grows, by 1 ms in 10 s at 100 ppm. But the way back (round trip less
   way there) then looks shorter by as much. So where a way back is shorter than the quickest of the last seconds, the
   origin is moved by the difference (`Clocks`). A shorter way back that has another reason only moves all paths alike.
3. Step. The way back differs from the quickest one by no more than a round trip, so a larger difference is a step of a
   clock. The origin is set anew at once, and all paths forget their minimum.
4. Bound. Queueing on the way there is part of the round trip. So whatever a peer reports, no more counts than the round
   trip exceeds the path's smallest, and no less than nothing.
"""

from __future__ import annotations

from typing import Final

from srd.proto.paths.rtt import RttEstimator, WindowedMin

_MODULUS: Final = 1 << 32
_HALF: Final = 1 << 31


class Clocks(WindowedMin):
    """The offset of a peer's clock from this end's; `way_there_s` of each report, over all paths.

    The windowed minimum is that of the way back, in microseconds.
    """

    __slots__ = ("_offset_us", "detour_s", "generation")

    def __init__(self) -> None:
        super().__init__()
        self._offset_us = 0  # receiver's clock less sender's, modulo 2^32, so that the first way there is 0
        self.generation = 0
        """Number of steps, the first sample among them; differences are comparable only within one."""
        self.detour_s = 0.0
        """By how much the way back of the latest sample was longer than the quickest of the last seconds."""

    def way_there_s(self, *, sent_us: int, received_us: int, rtt_us: int, now: float) -> float:
        """Return the time from `sent_us` of this end's clock to `received_us` of the peer's, from a common origin.

        `rtt_us`: the round trip of the same packet, without the delay in the receiving host.
        """
        there_us = (received_us - sent_us - self._offset_us + _HALF) % _MODULUS - _HALF
        back_us = rtt_us - there_us
        lead_us = self.min_s - back_us
        if abs(lead_us) > rtt_us:  # true before the first sample, as the minimum is infinite
            self.generation += 1
            self._offset_us = received_us - sent_us
            self.forget()
            there_us, back_us = 0, rtt_us
        elif lead_us > 0:
            self._offset_us += int(lead_us)
            there_us -= int(lead_us)
            back_us += int(lead_us)
        self.observe(back_us, now=now)
        self.detour_s = (back_us - self.min_s) / 1e6
        return there_us / 1e6


class OneWayDelay(WindowedMin):
    """Queueing on the way there of one path: `update` with each sample; read `queue_s`, `smoothed_s`, `variation_s`."""

    __slots__ = ("_generation", "queue_s", "smoothed_s", "variation_s")

    def __init__(self) -> None:
        super().__init__()
        self._generation = 0
        self.queue_s = 0.0
        """Of the latest sample."""
        self.smoothed_s = 0.0
        """The same, smoothed as a round trip is (RFC 6298)."""
        self.variation_s = 0.0
        """Mean deviation of the way there."""

    def update(self, there_s: float, *, clocks: Clocks, rtt: RttEstimator, now: float) -> None:
        """Add one sample of the way there; `rtt` has the round trip of the same packet."""
        if self._generation != clocks.generation:
            self._generation = clocks.generation
            self.forget()
        self.observe(there_s, now=now)
        self.queue_s = max(min(there_s - self.min_s, rtt.latest_s - rtt.min_s), 0.0)
        self.variation_s += (abs(self.queue_s - self.smoothed_s) - self.variation_s) / 4
        self.smoothed_s += (self.queue_s - self.smoothed_s) / 8
