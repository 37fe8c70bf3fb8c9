"""The search for flavors: what Kueue's cases (test_cases.py) do not state."""

from __future__ import annotations

from netns.placement.model import PlacementRequest
from tests.netns.governance_world import once, queue, reasons, waits, world


def test_a_resource_that_nothing_covers_is_refused_unless_it_is_zero() -> None:
    state = world(queue("q"))
    waits(state, "in", "q", podsets=(PlacementRequest("main", 1, {"cpu": 1, "gpu": 1}),))
    waits(state, "zero", "q", podsets=(PlacementRequest("main", 1, {"cpu": 1, "gpu": 0}),), created=1)
    outcome = once(state)
    assert reasons(outcome) == {"in": "Pending"}
    assert outcome.waiting[0].message.endswith("resource gpu unavailable in ClusterQueue")
    assert [each.workload for each in once(state).admitted] == ["n/zero"]
