"""netns.placement.model: plain data."""

from __future__ import annotations

from netns.placement.model import Assignment, DomainAssignment, Unplaceable


def test_assignment__counts_its_pods() -> None:
    assert Assignment(("x",), (DomainAssignment(("a",), 2), DomainAssignment(("b",), 3))).count == 5


def test_unplaceable__reads_as_its_message() -> None:
    assert str(Unplaceable("count", "count: 0 pods; request at least one")) == "count: 0 pods; request at least one"
