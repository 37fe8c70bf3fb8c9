"""Round-trip time of one path, and of all paths of a peer: smoothed, variation (RFC 6298), minimum of ten seconds.

The queueing delay is measured against the minimum; its time window lets it follow a route that became longer. Each
link stores and forwards, so a short packet arrives sooner than a long one, on a slow link by more than the target of
that delay: while long packets are sent, the minimum is theirs alone. Times are in seconds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

MIN_WINDOW_S: Final = 10.0
"""BBR's window for the same purpose (draft-cardwell-iccrg-bbr)."""
FRESH_RTTS: Final = 2
"""Round trips within which a path that is in use is sampled."""
REFRESHES_PER_RTT: Final = 4
"""Times per round trip that the mean over the paths is computed: with the pace of a round trip that a queue made long
a window that was shrunk because of it leaves the link idle for another one."""
LEAST_REFRESH_S: Final = 0.005
"""Smallest time between them, but for shorter round trips, which have one each: there may be 64 paths."""
LONG_RTT_S: Final = 0.01
"""Smallest round trip from which a path counts as long. A shorter round trip may consist mostly of scheduling delay on
busy hosts."""
SHARED_MIN_RTTS, SHARED_MIN_S, MAX_SHARED_MIN_S = 50, 0.1, 1.0
"""How long every path is assumed to be as short as the shortest, in round trips of the longest, at least and at most: a
path opened into a standing queue would take the queue for its base round trip, while a longer path's base round trip
would count as a queue, and so would what a long packet takes more than the handshake's."""
MAX_LONG_RATIO: Final = 1.5
"""How much longer than a short packet's a long one's round trip may be without a queue: 1.4 over two links of 250
Mbit/s and 2 ms."""
SHARED_MIN_RATIO: Final = 2.0
"""Smallest round trip of a path over that of the shortest path up to which a queue may be the reason: a buffer rarely
holds more than one bandwidth-delay product."""


class WindowedMin:
    """Windowed minimum: `observe` each sample; `min_s` covers the last `window_s`, or at least half of it.

    The window is an argument: a peer has dozens of minima.
    """

    __slots__ = ("_older_min_s", "_younger_min_s", "_younger_since", "min_s")

    def __init__(self) -> None:
        self.min_s = math.inf  # infinite before the first sample
        # Of the current half window and of the one before it.
        self._younger_min_s = math.inf
        self._older_min_s = math.inf
        self._younger_since = -math.inf

    def forget(self) -> None:
        """Start again, as before the first sample."""
        self.min_s = self._younger_min_s = self._older_min_s = math.inf
        self._younger_since = -math.inf

    def observe(self, sample_s: float, *, now: float, window_s: float = MIN_WINDOW_S) -> None:
        """Add one sample."""
        if now - self._younger_since > window_s / 2:
            self._older_min_s, self._younger_min_s = self._younger_min_s, sample_s
            self._younger_since = now
        else:
            self._younger_min_s = min(self._younger_min_s, sample_s)
        self.min_s = min(self._younger_min_s, self._older_min_s)


class RttEstimator(WindowedMin):
    """`update` with each sample; read `smoothed_s`, `variation_s`, `min_s`, `latest_s`."""

    __slots__ = ("latest_s", "sampled_at", "smoothed_s", "variation_s")

    def __init__(self, *, initial_s: float) -> None:
        super().__init__()
        self.smoothed_s = initial_s
        self.variation_s = initial_s / 2
        self.latest_s = 0.0
        self.sampled_at = -math.inf

    @property
    def sampled(self) -> bool:
        """Whether any sample was taken."""
        return self.latest_s > 0

    def update(self, sample_s: float, *, now: float, is_least: bool = True, least_since: float = -math.inf) -> None:
        """Add one sample, RFC 6298 section 2.

        `is_least`: it may be the minimum, of which what is older than `least_since` is forgotten (`PeerRtt.takes`).
        """
        sample_s = max(sample_s, 1e-6)  # a microsecond clock may give zero
        if self.sampled:
            self.variation_s += (abs(self.smoothed_s - sample_s) - self.variation_s) / 4
            self.smoothed_s += (sample_s - self.smoothed_s) / 8
        else:
            self.smoothed_s, self.variation_s = sample_s, sample_s / 2
        self.latest_s = sample_s
        self.sampled_at = now
        if is_least:
            if self._younger_since < least_since and sample_s <= MAX_LONG_RATIO * self.min_s:
                self.forget()
            self.observe(sample_s, now=now)
        elif self.min_s == math.inf:  # until one may be
            self.min_s = self._younger_min_s = sample_s

    def timeout_s(self, *, floor_s: float) -> float:
        """Return how long to wait for an answer; `floor_s` bounds four times the variation from below."""
        return self.smoothed_s + max(4 * self.variation_s, floor_s)


class PeerRtt(WindowedMin):
    """Round trip of a peer: `min_s` over all paths, `smoothed_s` over those in use."""

    __slots__ = ("_long_until", "_shared_since", "long_since", "refresh_at", "smoothed_s", "spread_s")

    def __init__(self, *, initial_s: float) -> None:
        super().__init__()
        self.smoothed_s = initial_s
        self.spread_s = 0.0
        """By how much the base round trip of the longest active path is above that of the shortest."""
        self.refresh_at = 0.0
        """When to compute the mean over the paths again."""
        self._shared_since = math.inf  # the first sample
        self.long_since = -math.inf
        """Since when the smallest round trips of paths are those of long packets; minus infinity: all count."""
        self._long_until = 0.0

    def takes(self, *, is_long: bool, now: float) -> bool:
        """Note a sample; return whether it may be the smallest of its path: a short one only if there are no others."""
        if is_long:
            if now >= self._long_until:
                self.long_since = now
            self._long_until = now + MIN_WINDOW_S
            return True
        if now >= self._long_until:
            self.long_since = -math.inf
        return self.long_since == -math.inf

    def is_shared(self, path: RttEstimator, *, unequal: bool, now: float) -> bool:
        """Whether the minimum of all paths stands for a path's own, which may not have seen an empty queue yet.

        That is so for some time after the first call, unless the paths are of `unequal` length, and this one is
        too long for a queue to explain it.
        """
        if self._shared_since == math.inf:
            self._shared_since = now
        longest_s = max(SHARED_MIN_RTTS * (self.min_s + self.spread_s), SHARED_MIN_S)
        is_young = now - self._shared_since < min(longest_s, MAX_SHARED_MIN_S)
        return is_young and not (unequal and path.min_s > SHARED_MIN_RATIO * self.min_s)

    def refresh(self, active: Sequence[RttEstimator], *, now: float) -> None:
        """Compute the mean over the active paths again."""
        if sampled := [rtt for rtt in active if rtt.sampled]:
            # Unused paths do not count: slow paths that carry no data any more would lower the pacing rate.
            used = [rtt for rtt in sampled if now - rtt.sampled_at < FRESH_RTTS * self.smoothed_s] or sampled
            self.smoothed_s = sum(rtt.smoothed_s for rtt in used) / len(used)
            self.spread_s = max(rtt.min_s for rtt in sampled) - min(rtt.min_s for rtt in sampled)
        self.refresh_at = now + min(max(self.smoothed_s / REFRESHES_PER_RTT, LEAST_REFRESH_S), self.smoothed_s)
