"""Deadlines, against a dictionary."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from srd.proto.endpoint.timers import Timers

KEYS = st.integers(0, 5)
TIMES = st.integers(0, 40).map(float)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("arm"), KEYS, TIMES | st.none()),
        st.tuples(st.just("expire"), KEYS, TIMES),
        st.tuples(st.just("look"), KEYS, TIMES),
    ),
    max_size=80,
)


@given(STEPS)
def test_timers__are_a_dictionary_of_deadlines(steps: list[tuple[str, int, float | None]]) -> None:
    timers, model = Timers(), dict[int, float]()
    for step, key, at in steps:
        if step == "arm":
            timers.arm(key, at=at)
            model.pop(key, None)
            if at is not None:
                model[key] = at
        elif step == "expire":
            assert at is not None
            expired = timers.expired(at)
            assert sorted(expired) == sorted(k for k, deadline in model.items() if deadline <= at)
            deadlines = [model.pop(k) for k in expired]
            assert deadlines == sorted(deadlines)
        assert timers.next_at() == min(model.values(), default=None)


def test_arm__later_costs_no_entry() -> None:
    """A deadline that every packet postpones must not grow the heap."""
    timers = Timers()
    for step in range(10_000):
        timers.arm(7, at=1.0 + step)
    assert len(timers._heap) == 1
    assert timers.next_at() == 10_000.0
