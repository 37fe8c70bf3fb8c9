"""Who gives way, by policy, priority and place in the tree."""

from __future__ import annotations

import pytest

from netns.governance import cycle
from netns.governance.model import Cohort, PodSet, Preemption, Quota, WorkloadCondition
from netns.governance.partial import largest_counts
from tests.netns.governance_world import ANY, LOWER, admitted, once, preempted, queue, reasons, runs, waits, world


@pytest.mark.parametrize(
    ("policy", "preempts"),
    [
        ("Never", []),
        ("LowerPriority", ["lower"]),
        ("LowerOrNewerEqualPriority", ["lower", "newer"]),
    ],
)
def test_within_a_queue(policy: str, preempts: list[str]) -> None:
    found = list[str]()
    for name, priority, created in (("lower", 0, 0), ("older", 1, 1), ("newer", 1, 9), ("higher", 2, 9)):
        state = world(queue("q", 10, None, preemption=Preemption(policy)))
        runs(state, name, "q", 10, priority=priority, created=created)
        waits(state, "in", "q", 10, priority=1, created=5)
        found += preempted(once(state))
    assert found == preempts


@pytest.mark.parametrize(
    ("rules", "need", "expected"),
    [
        (Preemption(), 10, {}),
        (LOWER, 10, {"low": "InCohortReclamation"}),
        (ANY, 10, {"low": "InCohortReclamation"}),
        (Preemption("Never", "Any"), 12, {}),  # it would borrow itself
        (Preemption("Never", "LowerPriority", while_borrowing=True), 12, {"low": "InCohortReclaimWhileBorrowing"}),
        (Preemption("Never", "LowerPriority", while_borrowing=True, threshold=-1), 12, {}),
    ],
)
def test_from_the_cohort(rules: Preemption, need: int, expected: dict[str, str]) -> None:
    state = world(queue("a", preemption=rules), queue("b"))
    runs(state, "low", "b", 12)
    runs(state, "own", "b", 6, priority=5)
    waits(state, "in", "a", need, priority=1)
    assert preempted(once(state)) == expected


def test_a_queue_within_its_quota_loses_nothing() -> None:
    state = world(queue("a", preemption=ANY), queue("b"), queue("c"))
    runs(state, "b1", "b", 10)
    runs(state, "c1", "c", 10)
    runs(state, "c2", "c", 5)
    waits(state, "in", "a", 10)
    assert preempted(once(state)) == {"c2": "InCohortReclamation"} or preempted(cycle(state, now=1.0)) == {}
    assert not state.workloads["n/b1"].has("Evicted")


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"priority": 0}, {"priority": 1}),
        ({"since": 9.0}, {"since": 1.0}),
        (
            {"conditions": {"Evicted": WorkloadCondition(status=True, reason="Preempted")}, "priority": 1},
            {"priority": 0},
        ),
    ],
)
def test_the_order_of_candidates(first: dict, second: dict) -> None:  # type: ignore[type-arg]
    state = world(queue("q", 10, None, preemption=Preemption("LowerPriority")))
    runs(state, "second", "q", 5, **second)
    runs(state, "first", "q", 5, **first)
    waits(state, "in", "q", 5, priority=5)
    once(state)
    assert state.workloads["n/first"].has("Evicted")
    assert not state.workloads["n/second"].has("Evicted")


def test_who_need_not_go_is_put_back() -> None:
    state = world(queue("q", 10, None, preemption=Preemption("LowerPriority")))
    runs(state, "small", "q", 2)
    runs(state, "large", "q", 8, priority=1)
    waits(state, "in", "q", 8, priority=5)
    assert preempted(once(state)) == {"large": "InClusterQueue"}


def test_the_advantage_in_the_hierarchy() -> None:
    """Who borrows from outside of the preemptor's own cohort goes whatever its priority; within it, the rules count."""
    cohorts = [Cohort("left", "root"), Cohort("right", "root")]
    queues = (queue("a", 10, "left", preemption=ANY), queue("b", 10, "left"), queue("c", 0, "right"))
    state = world(*queues, cohorts=cohorts)
    runs(state, "c1", "c", 10, priority=9)
    runs(state, "b1", "b", 10, priority=0)
    waits(state, "in", "a", 10)
    assert preempted(once(state)) == {"c1": "InCohortReclamation"}


def test_victims_are_claimed_once_in_a_cycle() -> None:
    state = world(queue("a", 5, preemption=ANY), queue("b", 5, preemption=ANY), queue("c", 0))
    runs(state, "c1", "c", 5)
    runs(state, "c2", "c", 5)
    waits(state, "in-a", "a", 5)
    waits(state, "in-b", "b", 5)
    outcome = once(state)
    assert set(preempted(outcome)) == {"c1", "c2"}
    assert reasons(outcome) == dict.fromkeys(("in-a", "in-b"), "WaitingForPreemptedWorkloads")


def test_a_victim_keeps_its_quota_until_it_is_gone() -> None:
    state = world(queue("q", 10, None, preemption=Preemption("LowerPriority")))
    runs(state, "low", "q", 10)
    waits(state, "in", "q", 10, priority=1)
    assert preempted(once(state)) == {"low": "InClusterQueue"}
    again = once(state)
    assert (admitted(again), preempted(again)) == ([], {})  # not marked twice


def test_who_cannot_preempt_books_its_quota() -> None:
    """Else a lower one of another queue would take it, unless the queue may always reclaim."""
    for rules, expected in ((Preemption(), []), (ANY, ["small"])):
        state = world(queue("a", 10, preemption=rules), queue("b", 0))
        runs(state, "a1", "a", 5, priority=9)
        waits(state, "large", "a", 10, created=1)
        waits(state, "small", "b", 5, created=2)
        assert admitted(once(state)) == expected


def test_partial_admission_takes_the_most_that_fits() -> None:
    podset = PodSet("main", 10, {"cpu": 1}, min_count=2)
    state = world(queue("q", Quota(6), None))
    waits(state, "in", "q", podsets=(podset,))
    (found,) = once(state).admitted
    assert [(each.count, each.usage) for each in found.admission.podsets] == [(6, {"cpu": 6})]
    assert largest_counts([podset], lambda counts: counts if counts[0] <= 1 else None) is None
