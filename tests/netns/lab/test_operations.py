"""netns.lab.operations: printed lines, and undo operations."""

from __future__ import annotations

import pytest

from netns.lab.operations import (
    AddNamespace,
    DeleteNamespace,
    Hop,
    Operation,
    RelayLink,
    SetCarrier,
    SetDown,
    SetSysctl,
    SetUp,
    StartRelay,
    StopRelay,
    SyncCarrier,
    undo,
)
from netns.netem.shape import Shape

RELAYED = RelayLink("a-b", "x-a", "b", "x-b", "a", Shape(delay_us=5), Shape(), 1, 2)
HOPS = (Hop("10.255.0.1", "s1"), Hop("10.255.0.3", "s2"))


@pytest.mark.parametrize(
    ("step", "line"),
    [
        (DeleteNamespace("x-a"), "netns delete x-a"),
        (SetSysctl("x-a", "k", 1, optional=True), "sysctl x-a k=1 (where the kernel has it)"),
        (SetUp("x-a", "b"), "up x-a:b"),
        (SetDown("x-a", "b"), "down x-a:b"),
        (SetCarrier("x-a", "b", "off"), "carrier x-a:b off"),
        (SyncCarrier("x-a", "b"), "settle x-a:b"),
        (StopRelay("x"), "relay stop x"),
    ],
)
def test_str__is_the_line_of_the_plan(step: Operation, line: str) -> None:
    assert str(step) == line


def test_undo__objects_outside_namespaces_in_reverse_order() -> None:
    steps = (AddNamespace("x-a"), AddNamespace("x-b"), SetUp("x-a", "b"), StartRelay("x", (RELAYED,)))
    assert undo(steps) == (StopRelay("x"), DeleteNamespace("x-b"), DeleteNamespace("x-a"))
