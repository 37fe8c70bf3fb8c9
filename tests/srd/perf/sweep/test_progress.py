"""How long a size is measured: in virtual time."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from srd.perf.sweep.progress import WARM_UP, MessageQuota, Span


def run(span: Span, *, each_ns: int) -> tuple[int, int, int]:
    """Return how many were done, how many counted, and the time."""
    now, done, counted = 0, 0, 0
    while span.goes_on(now, counted=counted):
        counted += span.counts(now, done=done)
        done += 1
        now += each_ns
    return done, counted, now


@given(st.integers(1, 5000), st.integers(1, 10**9))
def test_span__of_iterations_counts_so_many(iterations: int, each_ns: int) -> None:
    done, counted, _ = run(Span(iterations=iterations, seconds=0.0, now_ns=0), each_ns=each_ns)
    assert counted == iterations
    assert done == iterations + min(iterations, WARM_UP)


@given(st.floats(0.01, 1.0), st.integers(10**5, 10**10))
def test_span__of_some_time_ends_in_time_and_counts_one_at_least(seconds: float, each_ns: int) -> None:
    done, counted, ended_ns = run(Span(iterations=0, seconds=seconds, now_ns=0), each_ns=each_ns)
    assert counted >= 1
    assert ended_ns <= max(seconds * 1e9 + each_ns + 1, 2 * each_ns)
    assert done - counted <= min(WARM_UP, seconds * 1e9 / 4 / each_ns + 2)


def test_quota__of_iterations_is_shared() -> None:
    quota = MessageQuota.of(iterations=25, seconds=0.0)
    assert [quota.take(10) for _ in range(4)] == [10, 10, 5, 0]
    assert quota.total == 25


@given(st.integers(1, 1000), st.integers(1, 50))
def test_quota__parts_are_equal_and_all_of_it(iterations: int, count: int) -> None:
    quota = MessageQuota.of(iterations=iterations, seconds=0.0)
    taken = [part.take(iterations) for part in quota.split(count)]
    assert sum(taken) == quota.total == iterations
    assert max(taken) - min(taken) <= 1
    assert quota.take(1) == 0


def test_quota__of_no_time_left_is_one_batch() -> None:
    quota = MessageQuota.of(iterations=0, seconds=-1.0)
    assert [quota.take(10) for _ in range(2)] == [10, 0]
