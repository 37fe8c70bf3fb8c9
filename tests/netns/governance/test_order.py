"""Who is the head, who is parked, and what brings the parked ones back."""

from __future__ import annotations

import pytest

from netns.governance import Settings
from netns.governance.apply import backoff_s, gone, not_ready
from netns.governance.model import Preemption, WorkloadCondition
from netns.governance.settings import PodsReady
from tests.netns.governance_world import admitted, once, queue, reasons, runs, waits, world

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


def test_strict_fifo_blocks_and_best_effort_does_not() -> None:
    state = world(queue("strict", 10, None, strategy="StrictFIFO"), queue("best", 10, None))
    for at in ("strict", "best"):
        runs(state, f"{at}-runs", at, 6)
        waits(state, f"{at}-large", at, 5, created=1)
        waits(state, f"{at}-small", at, 1, created=2)
    assert once(state).admitted == []
    assert admitted(once(state)) == ["best-small"]
    assert state.lines["strict"].ordered() == ["n/strict-large", "n/strict-small"]
    assert list(state.lines["best"].parked) == ["n/best-large"]


def test_equal_shapes_are_parked_together_and_woken_by_what_ends_in_the_tree() -> None:
    state = world(queue("a", 10), queue("b", 10))
    running = runs(state, "running", "b", 18)
    for name in ("one", "two"):
        waits(state, name, "a", 5)
    waits(state, "other", "a", 4)
    assert reasons(once(state)) == {"one": "WaitingForQuota"}
    assert set(state.lines["a"].parked) == {"n/one", "n/two"}
    waits(state, "three", "a", 5)  # parked on arrival
    assert set(state.lines["a"].active) == {"n/other"}
    gone(state, running, now=2.0)
    assert set(state.lines["a"].active) == {"n/other", "n/one", "n/two", "n/three"}


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


@pytest.mark.parametrize(("count", "wait_s"), [(1, 60), (2, 120), (3, 240), (7, 3600), (5000, 3600)])
def test_the_backoff_doubles(count: int, wait_s: float) -> None:
    assert backoff_s(count, PodsReady()) == wait_s


def test_pods_that_are_not_ready_in_time() -> None:
    settings = Settings(pods_ready=PodsReady(timeout_s=100, backoff_limit=1))
    state = world(queue("q"), settings=settings)
    workload = waits(state, "slow", "q")
    assert admitted(once(state, 0.0)) == ["slow"]
    assert not_ready(state, now=99.0) == []
    assert not_ready(state, now=100.0) == ["n/slow"]
    gone(state, workload, now=101.0)
    assert workload.requeue_at == 160.0
    state.wake("q", now=159.0)
    state.wake_due(now=159.0)
    assert once(state, 159.0).admitted == []
    state.wake_due(now=160.0)
    assert admitted(once(state, 160.0)) == ["slow"]
    assert not_ready(state, now=300.0) == ["n/slow"]
    gone(state, workload, now=300.0)
    assert not workload.active
    assert workload.key not in state.lines["q"]


def test_nothing_is_admitted_beside_one_that_is_not_ready() -> None:
    settings = Settings(pods_ready=PodsReady(block_admission=True))
    state = world(queue("a"), queue("b"), settings=settings)
    first = waits(state, "one", "a", created=1)
    waits(state, "two", "b", created=2)
    outcome = once(state)
    assert (admitted(outcome), reasons(outcome)) == (["one"], {"two": "WaitingForPodsReady"})
    first.conditions["PodsReady"] = WorkloadCondition(status=True)
    assert admitted(once(state)) == ["two"]


def test_a_stopped_queue_admits_nothing() -> None:
    state = world(queue("q", stop="Hold"))
    waits(state, "one", "q")
    assert once(state).admitted == []
