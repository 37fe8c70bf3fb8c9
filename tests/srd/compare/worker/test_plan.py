"""The line that tells a host its part."""

from __future__ import annotations

import pytest

from srd.compare.worker.plan import BLOCK_BYTES, PlannedFlow

TO = ("10.0.0.1", 7)


@pytest.mark.parametrize("size", [1, BLOCK_BYTES - 1, BLOCK_BYTES, BLOCK_BYTES + 1, 5 * BLOCK_BYTES])
def test_blocks__are_the_flow(size: int) -> None:
    blocks = PlannedFlow(1, TO, size, 0.0).blocks()
    assert [number for number, _ in blocks] == list(range(len(blocks)))
    assert sum(length for _, length in blocks) == size
    assert all(0 < length <= BLOCK_BYTES for _, length in blocks)
