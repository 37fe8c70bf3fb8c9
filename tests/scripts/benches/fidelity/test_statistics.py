"""scripts.benches.fidelity.statistics: published values, and detection of differences."""

from __future__ import annotations

import numpy as np
import pytest

from scripts.benches.fidelity.statistics import chi_square_sf, classes_differ, durations_differ, shares_differ


@pytest.mark.parametrize(
    ("statistic", "degrees", "chance"),
    [(3.841, 1, 0.05), (6.635, 1, 0.01), (5.991, 2, 0.05), (16.812, 6, 0.01), (18.307, 10, 0.05), (30.578, 15, 0.01)],
)
def test_chi_square_sf__the_handbooks_critical_values(statistic: float, degrees: int, chance: float) -> None:
    """NIST/SEMATECH e-Handbook of Statistical Methods, table 1.3.6.7.4."""
    assert chi_square_sf(statistic, degrees=degrees) == pytest.approx(chance, rel=0.002)


def test_chi_square_sf__of_zero() -> None:
    assert chi_square_sf(0, degrees=3) == 1


def test_classes_differ__by_hand() -> None:
    # Expected 15 in each of four: 4 x (5**2 / 15) = 6.667 with one degree of freedom.
    assert classes_differ((10, 20), (20, 10)) == pytest.approx(chi_square_sf(6.6667, degrees=1), rel=1e-4)
    assert classes_differ((10, 20), (10, 20)) == 1


def test_classes_differ__small_classes_are_joined() -> None:
    assert classes_differ((100, 1, 0, 1), (100, 0, 1, 0)) == 1, "one class is left"
    assert classes_differ((0, 0), (0, 1)) == 1
    assert classes_differ((50, 4, 4, 4, 50), (50, 4, 4, 4, 50)) == 1


def test_shares_differ() -> None:
    assert shares_differ(200, 20_000, 205, 20_000) > 0.5
    assert shares_differ(200, 20_000, 300, 20_000) < 1e-5


@pytest.mark.parametrize("seed", range(5))
def test_durations_differ__detects_a_shift(seed: int) -> None:
    print(f"seed {seed}")
    rng = np.random.default_rng(seed)
    first, second = rng.normal(50, 20, 20_000), rng.normal(50, 20, 20_000)
    assert durations_differ(first, second) > 0.001
    assert durations_differ(first, second + 2) < 1e-6
    assert durations_differ(first, rng.normal(50, 22, 20_000)) < 1e-3
    assert durations_differ(first, first) == 1


def test_durations_differ__p_values_are_uniform_for_equal_distributions() -> None:
    """One in ten below 0.1, within five standard deviations of 200 trials."""
    rng = np.random.default_rng(7)
    p_values = [durations_differ(rng.random(500), rng.random(500)) for _ in range(200)]
    assert 0 <= sum(p < 0.1 for p in p_values) <= 200 * 0.1 + 5 * (200 * 0.1 * 0.9) ** 0.5
    assert sum(p < 0.5 for p in p_values) == pytest.approx(100, abs=36)
