"""scripts.benches.torture.lengths: within bounds, and at the boundaries."""

from __future__ import annotations

from random import Random

import pytest

from scripts.benches.torture.lengths import length


@pytest.mark.parametrize("longest", [0, 1, 500, 1416, 1417, 100_000, 1 << 30])
def test_length__is_within_bounds(longest: int) -> None:
    rng = Random(1)
    found = [length(rng, segment_bytes=1416, chunk_bytes=1 << 18, longest=longest, small=0.3) for _ in range(3000)]
    assert min(found) == 0
    assert max(found) <= longest


def test_length__is_dense_around_boundaries() -> None:
    rng = Random(1)
    found = {length(rng, segment_bytes=1416, chunk_bytes=1 << 18, longest=1 << 22, small=0.3) for _ in range(20_000)}
    for boundary in (0, 1416, 2 * 1416, 64 * 1416, 1 << 16, 1 << 18):
        assert {boundary, boundary + 1} <= found
