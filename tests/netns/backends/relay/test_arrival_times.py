from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from netns.backends.relay.arrival_times import arrival_times as progression


def arrival_times(count: int, *, since_ns: int, now_ns: int) -> list[int]:
    if not count:
        return []
    first_ns, step_ns = progression(count, since_ns=since_ns, now_ns=now_ns)
    return [first_ns + number * step_ns for number in range(count)]


gaps = st.integers(1, 10**6)
# Time between two reads of the relay, in ns: microseconds on an idle host, milliseconds on a busy one.
absences = st.lists(st.integers(1, 10**4) | st.integers(10**4, 10**7), max_size=20)


def stamped(*, first_ns: int, gap_ns: int, absences_ns: list[int]) -> list[tuple[int, int]]:
    """Return (true arrival, estimate) of each frame of a steady stream that is read after each such time."""
    seen, read_at, number = [], 0, 0
    for absence_ns in absences_ns:
        since, read_at = read_at, read_at + absence_ns
        arrived = range(first_ns + number * gap_ns, read_at + 1, gap_ns)
        seen += list(zip(arrived, arrival_times(len(arrived), since_ns=since, now_ns=read_at), strict=True))
        number += len(arrived)
    return seen


def test_arrival_times__the_middles_of_equal_parts() -> None:
    assert arrival_times(1, since_ns=100, now_ns=200) == [150]
    assert arrival_times(4, since_ns=0, now_ns=80) == [10, 30, 50, 70]
    assert arrival_times(3, since_ns=7, now_ns=7) == [7, 7, 7], "found at the very time since when it can be there"


@given(st.integers(1, 50), st.integers(0, 10**9), st.integers(0, 10**9))
def test_arrival_times__in_order_and_within_the_interval(count: int, since_ns: int, span_ns: int) -> None:
    times = arrival_times(count, since_ns=since_ns, now_ns=since_ns + span_ns)
    assert len(times) == count
    assert times == sorted(times)
    assert all(since_ns <= at <= since_ns + span_ns for at in times)


@given(gaps, absences)
@example(288_448, [350_000] * 10)
def test_arrival_times__a_steady_stream_is_at_most_half_a_gap_off(gap_ns: int, absences_ns: list[int]) -> None:
    bounded = [min(absence_ns, 200 * gap_ns) for absence_ns in absences_ns]
    pairs = stamped(first_ns=gap_ns, gap_ns=gap_ns, absences_ns=bounded)
    assert all(abs(estimate - true) <= gap_ns / 2 + 200 for true, estimate in pairs), "whole nanoseconds"
