"""Tests whether two samples have the same distribution: p-values for counts and for durations.

Sources: NIST/SEMATECH e-Handbook of Statistical Methods, 7.4.5 (chi-square, two samples in classes) and 1.3.5.16
(Kolmogorov-Smirnov); M. Abramowitz, I. Stegun, "Handbook of Mathematical Functions", 26.4.4 and 26.4.5 (chi-square with
an integer number of degrees of freedom in closed form). Both tests require independent observations.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

MIN_EXPECTED: Final = 5.0  # in a class, for the chi-square approximation to hold
_TERMS: Final = 100


def chi_square_sf(statistic: float, *, degrees: int) -> float:
    """Return the probability that a chi-square variable with `degrees` degrees of freedom exceeds `statistic`."""
    half = statistic / 2
    if half <= 0:
        return 1.0
    odd = degrees % 2
    total: float = math.erfc(math.sqrt(half)) if odd else math.exp(-half)
    order = 0.5 if odd else 1.0
    while order < degrees / 2:
        total += math.exp(order * math.log(half) - half - math.lgamma(order + 1))
        order += 1
    return min(total, 1.0)


def classes_differ(first: Sequence[int], second: Sequence[int]) -> float:
    """Return the p-value that two histograms over the same ordered classes have the same distribution.

    Neighbouring classes are merged until both samples expect at least MIN_EXPECTED in each.
    """
    joined = _joined(np.array([first, second], dtype=np.float64))
    if joined.shape[1] < 2:
        return 1.0
    expected = joined.sum(axis=1, keepdims=True) * joined.sum(axis=0, keepdims=True) / joined.sum()
    statistic = float(((joined - expected) ** 2 / expected).sum())
    return chi_square_sf(statistic, degrees=joined.shape[1] - 1)


def shares_differ(first: int, of_first: int, second: int, of_second: int) -> float:
    """Return the p-value that two shares (`first` of `of_first`, ...) have the same probability."""
    return classes_differ((first, of_first - first), (second, of_second - second))


def durations_differ(first: NDArray[Any], second: NDArray[Any]) -> float:
    """Return the p-value that two samples have the same continuous distribution (Kolmogorov-Smirnov, asymptotic)."""
    a, b = np.sort(first), np.sort(second)
    values = np.concatenate((a, b))
    below_a = np.searchsorted(a, values, side="right") / len(a)
    below_b = np.searchsorted(b, values, side="right") / len(b)
    distance = float(np.abs(below_a - below_b).max())
    root = math.sqrt(len(a) * len(b) / (len(a) + len(b)))
    scaled = (root + 0.12 + 0.11 / root) * distance
    if scaled < 0.2:  # the series below does not converge there; the probability is 1 to 12 digits
        return 1.0
    total = math.fsum((-1.0) ** (k - 1) * math.exp(-2 * (k * scaled) ** 2) for k in range(1, _TERMS))
    return min(max(2 * total, 0.0), 1.0)


def _joined(counts: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return columns merged from the left until each is large enough; the remainder is merged with its neighbour."""
    least_share = counts.sum(axis=1).min() / counts.sum()
    columns: list[NDArray[np.float64]] = []
    pending = np.zeros(2)
    for column in counts.T:
        pending = pending + column
        if pending.sum() * least_share >= MIN_EXPECTED:
            columns.append(pending)
            pending = np.zeros(2)
    if columns:
        columns[-1] = columns[-1] + pending
    return np.array(columns).T if columns else np.zeros((2, 0))
