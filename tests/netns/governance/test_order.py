"""Who is the head. Who is parked, and what brings the parked ones back: Kueue's cases (test_cases.py)."""

from __future__ import annotations

import pytest

from netns.governance import Settings
from netns.governance.apply import gone
from netns.governance.model import Preemption, WorkloadCondition
from tests.netns.governance_world import admitted, once, queue, runs, waits, world

EVICTED = {"Evicted": WorkloadCondition(status=True, reason="PodsReadyTimeout", at=5.0)}
BY_CHECK = {"Evicted": WorkloadCondition(status=True, reason="AdmissionCheck", at=5.0)}


@pytest.mark.parametrize(
    ("first", "second", "requeue_by", "head"),
    [
        ({"priority": 1}, {"priority": 2}, "Eviction", "b"),
        ({"created": 2}, {"created": 1}, "Eviction", "b"),
        ({}, {}, "Eviction", "a"),
        ({"created": 0, "conditions": EVICTED}, {"created": 1}, "Eviction", "b"),
        ({"created": 0, "conditions": EVICTED}, {"created": 1}, "Creation", "a"),
        ({"created": 0, "conditions": BY_CHECK}, {"created": 1}, "Creation", "b"),
    ],
)
def test_the_head_of_a_queue(first: dict, second: dict, requeue_by: str, head: str) -> None:  # type: ignore[type-arg]
    state = world(queue("q"), settings=Settings(requeue_by=requeue_by))  # type: ignore[arg-type]
    waits(state, "a", "q", **first)
    waits(state, "b", "q", **second)
    found = state.lines["q"].head()
    assert found is not None
    assert found.name == head


def test_a_head_that_waits_for_its_victims_stays_the_head() -> None:
    state = world(queue("q", 10, None, preemption=Preemption("LowerPriority")))
    victim = runs(state, "low", "q", 10)
    waits(state, "middle", "q", 10, priority=1)
    once(state)
    waits(state, "high", "q", 10, priority=2)
    assert admitted(once(state)) == []
    head = state.lines["q"].head()
    assert head is not None
    assert head.name == "middle"
    gone(state, victim, now=2.0)
    assert admitted(once(state)) == ["middle"]


def test_a_stopped_queue_admits_nothing() -> None:
    state = world(queue("q", stop="Hold"))
    waits(state, "one", "q")
    assert once(state).admitted == []
