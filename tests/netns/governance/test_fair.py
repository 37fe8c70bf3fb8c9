"""Fair sharing beyond a cycle. Shares, their strategies and the tournament: Kueue's cases (test_cases.py)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from netns.governance.model import Cohort, Preemption
from tests.netns.governance_world import FAIR, queue, settle, waits, world


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
