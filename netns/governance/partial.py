"""Partial admission: the largest number of pods with which a workload fits.

(Kueue: podset_reducer.go, KEP 420.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from netns.placement.model import PlacementRequest

T = TypeVar("T")


def largest_counts(podsets: Sequence[PlacementRequest], fits: Callable[[list[int]], T | None]) -> T | None:
    """Return what `fits` returns for the largest counts for which it is not None; None if there are none.

    Step k of D takes k/D of what each pod set can do without; the smallest k that fits is found by halving.
    """
    spare = [0 if each.min_count is None else each.count - each.min_count for each in podsets]
    steps = sum(spare)
    if steps == 0:
        return None
    found: T | None = None
    low, high = 0, steps + 1
    while low < high:
        middle = (low + high) // 2
        result = fits([each.count - part * middle // steps for each, part in zip(podsets, spare, strict=True)])
        if result is None:
            low = middle + 1
        else:
            found, high = result, middle
    return found
