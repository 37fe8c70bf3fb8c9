"""Round-trip time of one path: smoothed value and variation (RFC 6298), and the minimum of the last ten seconds.

The minimum is what the queueing delay is measured against; a window lets it follow a route that became longer.
Times are in seconds.
"""

from __future__ import annotations

import math

MIN_WINDOW_S = 10.0
"""BBR's window for the same purpose (draft-cardwell-iccrg-bbr)."""


class RttEstimator:
    """`update` with each sample; read `smoothed_s`, `variation_s`, `min_s`, `latest_s`."""

    __slots__ = (
        "_older_min_s",
        "_younger_min_s",
        "_younger_since",
        "latest_s",
        "min_s",
        "sampled_at",
        "smoothed_s",
        "variation_s",
    )

    def __init__(self, *, initial_s: float) -> None:
        self.smoothed_s = initial_s
        self.variation_s = initial_s / 2
        self.latest_s = 0.0
        self.sampled_at = -math.inf
        self.min_s = math.inf  # smallest sample of the window; infinite before the first
        # The minimum of the current half window and of the one before it: together, of five to ten seconds.
        self._younger_min_s = math.inf
        self._older_min_s = math.inf
        self._younger_since = -math.inf

    @property
    def sampled(self) -> bool:
        """Whether any sample was taken."""
        return self.latest_s > 0

    def update(self, sample_s: float, *, now: float) -> None:
        """Take one sample, RFC 6298 section 2."""
        sample_s = max(sample_s, 1e-6)  # a clock of microseconds may say zero
        if self.sampled:
            self.variation_s += (abs(self.smoothed_s - sample_s) - self.variation_s) / 4
            self.smoothed_s += (sample_s - self.smoothed_s) / 8
        else:
            self.smoothed_s, self.variation_s = sample_s, sample_s / 2
        self.latest_s = sample_s
        self.sampled_at = now
        if now - self._younger_since > MIN_WINDOW_S / 2:
            self._older_min_s, self._younger_min_s = self._younger_min_s, sample_s
            self._younger_since = now
        else:
            self._younger_min_s = min(self._younger_min_s, sample_s)
        self.min_s = min(self._younger_min_s, self._older_min_s)

    def timeout_s(self, *, floor_s: float) -> float:
        """How long to wait for an answer before taking it for lost; `floor_s` bounds the variation from below."""
        return self.smoothed_s + max(4 * self.variation_s, floor_s)
