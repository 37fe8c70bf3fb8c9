"""scripts.benches.torture.lengths: within bounds, and at the boundaries."""

from __future__ import annotations

from random import Random

from scripts.benches.torture.lengths import length


def test_length__is_dense_around_boundaries() -> None:
    rng = Random(1)
    found = {length(rng, segment_bytes=1416, chunk_bytes=1 << 18, longest=1 << 22, small=0.3) for _ in range(20_000)}
    for boundary in (0, 1416, 2 * 1416, 64 * 1416, 1 << 16, 1 << 18):
        assert {boundary, boundary + 1} <= found
