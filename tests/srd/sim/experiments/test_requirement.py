"""srd.sim.experiments.requirement: a bound is what was written, and NaN meets none."""

from __future__ import annotations

import math

import pytest

from srd.sim.experiments.errors import ExperimentError
from srd.sim.experiments.requirement import requirement


@pytest.mark.parametrize(
    ("text", "meets", "misses"), [("x <= 2", 2, 3), ("x >= 2", 2, 1), ("x < 2", 1, 2), ("x > 2", 3, 2)]
)
def test_met(text: str, meets: float, misses: float) -> None:
    found = requirement(text)
    assert (found.figure, found.limit) == ("x", 2.0)
    assert [found.met(value) for value in (meets, misses, math.nan)] == [True, False, False]


def test_worst__is_farthest_to_the_wrong_side() -> None:
    assert (requirement("x <= 2").worst([1, 3, 2]), requirement("x > 2").worst([1, 3, 2])) == (3, 1)
    assert math.isnan(requirement("x <= 2").worst([1, math.nan]))


@pytest.mark.parametrize("text", ["x", "x = 2", "x <= two", "x <= 2 s", ""])
def test_what_is_no_bound(text: str) -> None:
    with pytest.raises(ExperimentError, match=r"^bounds: .* is no bound; write FIGURE <= \| >= \| < \| > NUMBER$"):
        requirement(text)
