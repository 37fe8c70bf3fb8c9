"""netns.backends.virtual.event_queue: order of actions of one time, `remaining`, the clock."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from netns.backends.virtual.event_queue import Action, EventQueue


def note(log: list[tuple[str, int]], what: str) -> Action:
    return lambda now_ns: log.append((what, now_ns))


@given(st.lists(st.integers(0, 20)))
def test_run__in_order_of_time_then_of_setting(times: list[int]) -> None:
    events, log = EventQueue(), list[tuple[str, int]]()
    for index, at_ns in enumerate(times):
        events.at(at_ns, note(log, str(index)))
    events.run(until_ns=20)
    expected = sorted(enumerate(times), key=lambda item: (item[1], item[0]))
    assert log == [(str(index), at_ns) for index, at_ns in expected]
    assert events.now_ns == 20


def test_run__stops_at_its_bound_and_continues() -> None:
    events, log = EventQueue(), list[tuple[str, int]]()
    for at_ns in (5, 10, 11):
        events.at(at_ns, note(log, "x"))
    assert not events.run(until_ns=10)
    assert log == [("x", 5), ("x", 10)]
    events.run(until_ns=11)
    assert log[-1] == ("x", 11)


def test_at__the_past_is_now() -> None:
    events, log = EventQueue(), list[tuple[str, int]]()
    events.run(until_ns=100)
    events.at(5, note(log, "late"))
    events.run(until_ns=100)
    assert log == [("late", 100)]


def test_run__ends_when_done_between_moments() -> None:
    events, log = EventQueue(), list[tuple[str, int]]()
    for at_ns in (5, 5, 7):
        events.at(at_ns, note(log, "x"))
    assert events.run(until_ns=10, done=lambda: bool(log))
    assert log == [("x", 5), ("x", 5)]  # all actions of a time are executed
    assert events.now_ns == 5
    assert events.run(until_ns=10, done=lambda: bool(log))  # true already: nothing is executed
    assert len(log) == 2
    assert not events.run(until_ns=10, done=lambda: False)
    assert (len(log), events.now_ns) == (3, 10)


def test_remaining__runs_after_all_actions_of_a_time_and_may_add_some() -> None:
    events, log = EventQueue(), list[tuple[str, int]]()
    rests = []

    def rest(now_ns: int) -> None:
        rests.append((now_ns, len(log)))
        if len(log) == 2:
            events.at(now_ns, note(log, "added"))

    events.remaining = rest
    events.at(3, note(log, "a"))
    events.at(3, note(log, "b"))
    events.run(until_ns=9)
    assert log == [("a", 3), ("b", 3), ("added", 3)]
    assert rests == [(3, 2), (3, 3)]
