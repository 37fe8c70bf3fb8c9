"""The tree of quotas: what each node has, keeps, may get, and how far up a request borrows."""

from __future__ import annotations

import pytest

from netns.governance.model import UNLIMITED, Cohort, Quota
from netns.governance.quota import fit_in_total, lowest_fit
from tests.netns.governance_world import CPU, group, queue, world


@pytest.mark.parametrize(
    ("a", "b", "used_by_b", "free", "potential"),
    [
        (Quota(10), Quota(10), 0, 20, 20),
        (Quota(10), Quota(10), 15, 5, 20),
        (Quota(10, borrowing_limit=0), Quota(10), 0, 10, 10),
        (Quota(10, borrowing_limit=3), Quota(10), 0, 13, 13),
        (Quota(10, borrowing_limit=3), Quota(10), 10, 10, 13),
        (Quota(10), Quota(10, lending_limit=4), 0, 14, 14),  # b keeps 6
        (Quota(10), Quota(10, lending_limit=4), 6, 14, 14),  # what b uses first is what it keeps
        (Quota(10), Quota(10, lending_limit=4), 8, 12, 14),
        (Quota(10, lending_limit=0), Quota(10), 10, 10, 20),  # b borrows nothing that a keeps
        (Quota(10), Quota(UNLIMITED), 5, UNLIMITED, UNLIMITED),
    ],
)
def test_what_a_queue_may_use(a: Quota, b: Quota, used_by_b: int, free: int, potential: int) -> None:
    state = world(queue("a", a), queue("b", b))
    state.nodes["b"].add(CPU, used_by_b)
    assert (state.nodes["a"].available(CPU), state.nodes["a"].potential(CPU)) == (free, potential)


def test_a_debt_is_available_as_nothing() -> None:
    state = world(queue("a"), queue("b"))
    state.nodes["b"].add(CPU, 25)
    assert state.nodes["a"].free(CPU) == -5
    assert state.nodes["a"].available(CPU) == 0


def test_limits_of_cohorts_in_between_bind() -> None:
    cohorts = [
        Cohort("left", "root", (group(f=Quota(2, borrowing_limit=3, lending_limit=1)),)),
        Cohort("right", "root"),
    ]
    state = world(queue("a", 5, "left"), queue("b", 20, "right"), cohorts=cohorts)
    left = state.cohorts["left"]
    assert (left.total[CPU], left.kept[CPU]) == (7, 6)
    assert state.cohorts["root"].total[CPU] == 21
    assert state.nodes["a"].potential(CPU) == 10
    assert state.nodes["b"].potential(CPU) == 21


def test_usage_comes_back_as_it_went() -> None:
    cohorts = [Cohort("left", "root", (group(f=Quota(2, lending_limit=1)),))]
    state = world(queue("a", Quota(5, lending_limit=2), "left"), queue("b", 5, "root"), cohorts=cohorts)
    nodes = (state.nodes["a"], state.cohorts["left"], state.cohorts["root"])
    seen = []
    for amount in (2, 3, 4):
        seen.append([node.usage.get(CPU, 0) for node in nodes])
        nodes[0].add(CPU, amount)
    for amount, before in zip((4, 3, 2), reversed(seen), strict=True):
        nodes[0].remove(CPU, amount)
        assert [node.usage.get(CPU, 0) for node in nodes] == before


@pytest.mark.parametrize(("need", "level", "below_root"), [(5, 0, True), (10, 0, True), (15, 1, True), (25, 2, False)])
def test_the_level_of_borrowing(need: int, level: int, below_root: bool) -> None:  # noqa: FBT001 - a table's column
    cohorts = [Cohort("left", "root"), Cohort("right", "root")]
    queues = (queue("a", 10, "left"), queue("b", 10, "left"), queue("c", 10, "right"))
    state = world(*queues, cohorts=cohorts)
    assert lowest_fit(state.nodes["a"], CPU, need) == (level, below_root)


def test_what_is_left_of_a_request_above_what_is_kept() -> None:
    state = world(queue("a", Quota(10, lending_limit=4)), queue("b"))
    assert fit_in_total(state.nodes["a"], {CPU: 11}) == (False, {CPU: 5})
    assert fit_in_total(state.nodes["a"], {CPU: 3}) == (True, {CPU: 0})


def test_cohorts_in_a_cycle_admit_nothing() -> None:
    state = world(queue("a", 10, "x"), queue("b", 10, None), cohorts=[Cohort("x", "y"), Cohort("y", "x")])
    assert list(state.nodes) == ["b"]
    assert state.inactive(state.queues["a"]) == "cohort x: its parents are a cycle"
    assert state.inactive(state.queues["b"]) is None
