"""The tree of quotas: its usage, and trees that are none. What each node may get: Kueue's cases (test_cases.py)."""

from __future__ import annotations

from netns.governance.model import Cohort, Quota
from tests.netns.governance_world import CPU, group, queue, world


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


def test_cohorts_in_a_cycle_admit_nothing() -> None:
    state = world(queue("a", 10, "x"), queue("b", 10, None), cohorts=[Cohort("x", "y"), Cohort("y", "x")])
    assert list(state.nodes) == ["b"]
    assert state.inactive(state.queues["a"]) == "cohort x: its parents are a cycle"
    assert state.inactive(state.queues["b"]) is None
