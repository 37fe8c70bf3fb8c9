"""netns.base.fairness: Jain's index by hand."""

from __future__ import annotations

import math

from netns.base.fairness import jain_index


def test_jain_index() -> None:
    assert (jain_index([3, 3, 3]), jain_index([1, 0, 0, 0])) == (1, 0.25)
    assert math.isnan(jain_index([0, 0]))
