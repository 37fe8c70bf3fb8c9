"""The longest time in which less than a tenth of the mean rate arrived."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srd.compare.worker.stalls import GRAIN_S, SHARE, Stalls

BLOCK = 64 << 10
STEP_S = 0.001
"""From block to block: 500 Mbit/s."""


def steady(stalls: Stalls, *, since: float, count: int) -> float:
    """A block each STEP_S; return when the last one arrives."""
    for number in range(1, count + 1):
        stalls.arrived(BLOCK, at=since + number * STEP_S)
    return since + count * STEP_S


def test_stall__counts_from_the_start_or_from_the_first_byte() -> None:
    with_start, without = Stalls(), Stalls()
    with_start.start(0.0)
    for stalls in (with_start, without):
        steady(stalls, since=5.0, count=100)
    assert with_start.longest_s(until=None) > 5.0
    assert without.longest_s(until=None) < 2 * STEP_S


def test_stall__of_nothing() -> None:
    assert Stalls().longest_s(until=7.0) == 0.0
    stalls = Stalls()
    stalls.start(3.0)
    assert stalls.longest_s(until=7.0) == 4.0
    assert stalls.longest_s(until=None) == 0.0, "a sender receives nothing"
    stalls.arrived(1, at=3.0)
    assert stalls.longest_s(until=None) == 0.0


def test_stall__memory_is_bounded_by_time() -> None:
    stalls = Stalls()
    stalls.start(0.0)
    for number in range(100_000):
        stalls.arrived(1, at=number * 1e-6)
    assert len(stalls._bytes) <= 0.1 / GRAIN_S + 1
    assert stalls.longest_s(until=None) < 2 * GRAIN_S


@given(st.lists(st.tuples(st.integers(1, 50), st.integers(1, 1000)), min_size=1, max_size=30), st.booleans())
def test_stall__is_what_trying_all_pairs_finds(steps: list[tuple[int, int]], complete: bool) -> None:  # noqa: FBT001
    stalls, at, total, events = Stalls(), 0.0, 0, [(0.0, 0)]
    stalls.start(0.0)
    for milliseconds, size_bytes in steps:
        at, total = at + 0.01 * milliseconds, total + size_bytes
        stalls.arrived(size_bytes, at=at)
        events.append((at, total))
    end_s = at if complete else at + 0.3
    ends = [*events[1:], *([] if complete else [(end_s, total)])]
    per_s = SHARE * total / end_s
    expected = max(
        end_at - begin_at
        for first, (begin_at, before) in enumerate(events)
        for (end_at, _), (_, after) in zip(ends[first:], events[first:], strict=False)
        if after - before <= per_s * (end_at - begin_at) + 1e-9
    )
    assert stalls.longest_s(until=None if complete else end_s) == pytest.approx(expected)
