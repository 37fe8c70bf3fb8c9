"""netns.backends.virtual.event_queue: order within a moment, the rest after it, the clock."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from netns.backends.virtual.event_queue import Action, EventQueue


def note(log: list[tuple[str, int]], what: str) -> Action:
    return lambda now_ns: log.append((what, now_ns))


@given(st.lists(st.integers(0, 20)))
def test_run__in_order_of_time_then_of_setting(times: list[int]) -> None:
    agenda, log = EventQueue(), list[tuple[str, int]]()
    for index, at_ns in enumerate(times):
        agenda.at(at_ns, note(log, str(index)))
    agenda.run(until_ns=20)
    expected = sorted(enumerate(times), key=lambda item: (item[1], item[0]))
    assert log == [(str(index), at_ns) for index, at_ns in expected]
    assert agenda.now_ns == 20
    assert agenda.next_at_ns is None


def test_run__stops_at_its_bound_and_goes_on() -> None:
    agenda, log = EventQueue(), list[tuple[str, int]]()
    for at_ns in (5, 10, 11):
        agenda.at(at_ns, note(log, "x"))
    assert not agenda.run(until_ns=10)
    assert log == [("x", 5), ("x", 10)]
    assert agenda.next_at_ns == 11
    agenda.run(until_ns=11)
    assert log[-1] == ("x", 11)


def test_at__the_past_is_now() -> None:
    agenda, log = EventQueue(), list[tuple[str, int]]()
    agenda.run(until_ns=100)
    agenda.at(5, note(log, "late"))
    agenda.run(until_ns=100)
    assert log == [("late", 100)]


def test_run__ends_when_done_between_moments() -> None:
    agenda, log = EventQueue(), list[tuple[str, int]]()
    for at_ns in (5, 5, 7):
        agenda.at(at_ns, note(log, "x"))
    assert agenda.run(until_ns=10, done=lambda: bool(log))
    assert log == [("x", 5), ("x", 5)]  # a moment is whole
    assert agenda.now_ns == 5
    assert agenda.run(until_ns=10, done=lambda: bool(log))  # holds already: nothing happens
    assert len(log) == 2
    assert not agenda.run(until_ns=10, done=lambda: False)
    assert (len(log), agenda.now_ns) == (3, 10)


def test_rest__comes_after_everything_of_the_moment_and_may_add_to_it() -> None:
    agenda, log = EventQueue(), list[tuple[str, int]]()
    rests = []

    def rest(now_ns: int) -> None:
        rests.append((now_ns, len(log)))
        if len(log) == 2:
            agenda.at(now_ns, note(log, "added"))

    agenda.remaining = rest
    agenda.at(3, note(log, "a"))
    agenda.at(3, note(log, "b"))
    agenda.run(until_ns=9)
    assert log == [("a", 3), ("b", 3), ("added", 3)]
    assert rests == [(3, 2), (3, 3)]
