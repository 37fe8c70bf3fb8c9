"""PROBEs that keep a NAT's mappings: a round at once, then in intervals, and when an address is challenged."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srd.proto.paths.mappings import MIN_ROUND_S, Mappings


def drained(mappings: Mappings, *, now: float) -> list[int]:
    """Return the paths that are due now."""
    found: list[int] = []
    while (path := mappings.poll(now=now)) is not None:
        found.append(path)
    return found


def test_poll__a_round_that_was_interrupted_goes_on() -> None:
    mappings = Mappings(paths=3, interval_s=15, now=100)
    assert mappings.poll(now=100) == 0
    assert mappings.due_at == 100
    assert drained(mappings, now=104) == [1, 2]
    assert mappings.due_at == 115


@pytest.mark.parametrize(("challenged_at", "due_at"), [(100.2, 100.25), (101.5, 101.5), (114.9, 114.9)])
def test_on_challenge__a_round_soon(challenged_at: float, due_at: float) -> None:
    mappings = Mappings(paths=3, interval_s=15, now=100)
    drained(mappings, now=100)
    mappings.on_challenge(now=challenged_at)
    assert mappings.due_at == due_at
    mappings.on_challenge(now=challenged_at + 0.05)
    assert mappings.due_at == due_at, "the first challenge counts"


@given(
    st.lists(st.tuples(st.floats(0, 40), st.booleans()), max_size=60),
    st.integers(1, 64),
    st.floats(0.1, 60),
)
def test_anything__no_path_is_left_for_longer_than_an_interval_and_none_is_flooded(
    steps: list[tuple[float, bool]], paths: int, interval_s: float
) -> None:
    """`due_at` is kept to, and challenges come at any time: each path has a PROBE in each interval, few more."""
    mappings, now = Mappings(paths=paths, interval_s=interval_s, now=0.0), 0.0
    last_at = -math.inf
    for after_s, is_challenged in steps:
        until = now + after_s
        while (at := mappings.due_at) <= until:
            now = max(now, at)
            assert drained(mappings, now=now) == list(range(paths))
            assert now - last_at >= min(MIN_ROUND_S, interval_s) * 0.999
            assert last_at == -math.inf or now - last_at <= interval_s * 1.001
            last_at = now
        now = until
        if is_challenged:
            mappings.on_challenge(now=now)
