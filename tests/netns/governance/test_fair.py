"""Fair sharing: shares, their strategies, the tournament."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from netns.governance import Settings
from netns.governance.model import Cohort, Preemption
from netns.governance.settings import FINAL_SHARE, INITIAL_SHARE
from netns.governance.share import share_of
from tests.netns.governance_world import ANY, CPU, FAIR, admitted, once, preempted, queue, runs, settle, waits, world


@pytest.mark.parametrize(
    ("used", "weight", "share"), [(10, 1.0, 0), (12, 1.0, 100), (12, 2.0, 50), (12, 0.0, math.inf), (13, 2.0, 75)]
)
def test_the_share(used: int, weight: float, share: float) -> None:
    state = world(queue("a", weight=weight), queue("b"))
    state.nodes["a"].add(CPU, used)
    assert share_of(state.nodes["a"]).value == share


def test_two_infinite_shares_compare_by_their_ratios() -> None:
    state = world(queue("a", weight=0.0), queue("b", weight=0.0), queue("c", weight=1.0))
    for name, used in (("a", 12), ("b", 11), ("c", 30)):
        state.nodes[name].add(CPU, used)
    shares = sorted("abc", key=lambda name: share_of(state.nodes[name]).rank)
    assert shares == ["c", "b", "a"]


def test_the_lower_share_goes_first_and_the_next_choice_sees_it() -> None:
    state = world(queue("a", 0), queue("b", 0), queue("pool", 10), settings=FAIR)
    runs(state, "a0", "a", 2)
    waits(state, "a1", "a", 4, created=1)
    waits(state, "b1", "b", 4, created=2)
    assert admitted(once(state)) == ["b1", "a1"]


def test_who_does_not_borrow_goes_first() -> None:
    state = world(queue("a", 0, weight=100.0), queue("b", 4), queue("pool", 4), settings=FAIR)
    waits(state, "borrower", "a", 6, created=1)
    waits(state, "owner", "b", 4, created=2)
    assert admitted(once(state)) == ["owner"]


@pytest.mark.parametrize(
    ("strategies", "victims"),
    [
        ((FINAL_SHARE,), {}),
        ((INITIAL_SHARE,), {"b1": "InCohortFairSharing"}),
        ((FINAL_SHARE, INITIAL_SHARE), {"b1": "InCohortFairSharing"}),
    ],
)
def test_the_strategies(strategies: tuple[str, ...], victims: dict[str, str]) -> None:
    """a would have 4 of 10 borrowed; b has 6, and nothing once its only workload is gone."""
    state = world(
        queue("a", 0, preemption=ANY), queue("b", 0), queue("pool", 10), settings=Settings(fair_sharing=strategies)
    )
    runs(state, "b1", "b", 6)
    runs(state, "pool1", "pool", 4)
    waits(state, "in", "a", 4)
    assert preempted(once(state)) == victims


def test_within_its_quota_a_queue_reclaims_whatever_the_shares() -> None:
    state = world(queue("a", 10, weight=0.0, preemption=ANY), queue("b", 0, weight=1000.0), settings=FAIR)
    runs(state, "b1", "b", 1)
    waits(state, "in", "a", 10)
    assert preempted(once(state)) == {"b1": "InCohortReclamation"}


def test_the_subtree_with_the_highest_share_gives_way() -> None:
    cohorts = [Cohort("left", "root"), Cohort("right", "root")]
    queues = (queue("a", 4, "root", preemption=ANY), queue("l", 0, "left"), queue("r", 0, "right"))
    state = world(*queues, queue("pool", 6, "root"), settings=FAIR, cohorts=cohorts)
    for number in range(7):
        runs(state, f"l{number}", "l", 1, since=number)
    for number in range(3):
        runs(state, f"r{number}", "r", 1, since=number)
    waits(state, "in", "a", 4)
    assert sorted(preempted(once(state))) == ["l3", "l4", "l5", "l6"]


@pytest.mark.parametrize(("first", "ends"), [(False, False), (True, True)])
def test_who_has_preempted_is_first(*, first: bool, ends: bool) -> None:
    """Else its victim, with the lower share, gets its place back at once, and again (PrioritizePreemptorWorkloads)."""
    rules = Preemption("Never", "Any")
    queues = (
        queue("a", 1, "right", weight=0.0, preemption=rules),
        queue("b", 1, "left", weight=0.0, preemption=rules),
        queue("c", 3, "right", weight=0.0, preemption=rules),
        queue("d", 4, "left", weight=1.0, preemption=rules),
    )
    cohorts = [Cohort("left", "root"), Cohort("right", "root")]
    state = world(*queues, cohorts=cohorts, settings=replace(FAIR, preemptors_first=first))
    for number, (at, need) in enumerate((("b", 2), ("a", 8), ("a", 1), ("a", 1), ("d", 1), ("d", 8))):
        waits(state, f"w{number}", at, need, created=number)
    assert settle(state) == ends
