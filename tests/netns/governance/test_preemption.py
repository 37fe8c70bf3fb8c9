"""Who gives way in a queue, by policy and priority. In a tree of queues: Kueue's cases (test_cases.py)."""

from __future__ import annotations

import pytest

from netns.governance.model import Preemption
from tests.netns.governance_world import once, preempted, queue, runs, waits, world


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
