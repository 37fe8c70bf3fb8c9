"""netns.lab.operations: printed lines, and undo operations."""

from __future__ import annotations

import pytest

from netns.lab.operations import (
    AddNamespace,
    Hop,
    Operation,
    RelayLink,
    SetCarrier,
    SetState,
    SetSysctl,
    StartRelay,
    SyncCarrier,
    undo,
)
from netns.netem.shape import Shape

RELAYED = RelayLink("a-b", "x-a", "b", "x-b", "a", Shape(delay_us=5), Shape(), 1, 2)
HOPS = (Hop("10.255.0.1", "s1"), Hop("10.255.0.3", "s2"))


@pytest.mark.parametrize(
    ("step", "line"),
    [
        (SetSysctl("x-a", "k", 1, optional=True), "sysctl x-a k=1 (where the kernel has it)"),
        (SetState("x-a", "b", "up"), "up x-a:b"),
        (SetState("x-a", "b", "down"), "down x-a:b"),
        (SetCarrier("x-a", "b", "off"), "carrier x-a:b off"),
        (SyncCarrier("x-a", "b"), "settle x-a:b"),
    ],
)
def test_str__is_the_line_of_the_plan(step: Operation, line: str) -> None:
    assert str(step) == line


def test_undo__objects_outside_namespaces_in_reverse_order() -> None:
    steps = (AddNamespace("x-a"), AddNamespace("x-b"), SetState("x-a", "b", "up"), StartRelay("x", (RELAYED,)))
    assert undo(steps) == ["relay stop x", "netns delete x-b", "netns delete x-a"]
