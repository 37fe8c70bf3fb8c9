"""The line that tells a host its part."""

from __future__ import annotations

import json

import pytest

from srd.compare.worker.plan import BLOCK_BYTES, MAX_FLOW_BYTES, Plan, PlannedFlow

TO = ("10.0.0.1", 7)


def test_plan__is_read() -> None:
    line = json.dumps({"flows": [[1, *TO, 100, 0.5], [3, *TO, 1, 0.0]], "arriving": {"2": 50}})
    plan = Plan.parse(json.loads(line))
    assert plan.flows == (PlannedFlow(1, TO, 100, 0.5), PlannedFlow(3, TO, 1, 0.0))
    assert plan.arriving == {2: 50}
    assert plan.targets == {TO: 2}


@pytest.mark.parametrize("size", [1, BLOCK_BYTES - 1, BLOCK_BYTES, BLOCK_BYTES + 1, 5 * BLOCK_BYTES])
def test_blocks__are_the_flow(size: int) -> None:
    blocks = PlannedFlow(1, TO, size, 0.0).blocks()
    assert [number for number, _ in blocks] == list(range(len(blocks)))
    assert sum(length for _, length in blocks) == size
    assert all(0 < length <= BLOCK_BYTES for _, length in blocks)


def test_blocks__fit_an_immediate() -> None:
    assert MAX_FLOW_BYTES >= 10**9  # the longest message of the published distributions
