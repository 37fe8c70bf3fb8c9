"""netns.base.percentile: by the nearest rank."""

from __future__ import annotations

import random

from netns.base.percentile import percentile


def test_percentile__nearest_rank() -> None:
    values = [float(value) for value in range(1, 101)]
    random.Random(5).shuffle(values)
    assert [percentile(values, percent) for percent in (0, 1, 50, 99, 100)] == [1, 1, 50, 99, 100]
    assert percentile([7.0], 99) == 7.0
    assert [percentile(range(1, 1001), percent) for percent in (99, 99.9)] == [990, 999]
