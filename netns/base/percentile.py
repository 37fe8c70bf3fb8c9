"""Percentiles, by the nearest rank: always one of the values."""

from __future__ import annotations

import math
from collections.abc import Sequence


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the least value that `percent` of the values, which are at least one, do not exceed."""
    rank = math.ceil(round(percent * len(values) / 100, 9))  # rounded: 99.9 percent of 1,000 are 999
    return sorted(values)[max(rank - 1, 0)]
