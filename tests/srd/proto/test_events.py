from __future__ import annotations

from collections.abc import Callable

import pytest

from srd.proto.events import (
    BatchCompletion,
    Completion,
    Event,
    Extent,
    MessageAborted,
    MessageReceived,
    MessagesReceived,
    PeerEnded,
    PeerOpened,
    TargetCopy,
    WriteReceived,
)
from srd.proto.wire.status import Status

EVENTS: list[Event | Extent | TargetCopy] = [
    PeerOpened(peer=1, address="b:0", incoming=False),
    PeerEnded(peer=1, status=Status.OK, reason="closed", released=(Extent(0, 4096, 10),)),
    MessageReceived(peer=1, message=2, length=10, immediate=3, extents=(Extent(0, 4096, 10),)),
    MessagesReceived(peer=1, message=2, count=3, length=10, immediate=None, region_offset=4096, key=7),
    MessageAborted(peer=1, released=(Extent(0, 4096, 10),), key=7),
    WriteReceived(peer=1, length=10, immediate=3, key=7),
    Completion(peer=1, request=7, status=Status.FLUSHED),
    BatchCompletion(peer=1, request=7, count=3),
    TargetCopy(target=1, region_offset=4096, length=10),
    Extent(0, 4096, 10),
]


def another(value: object) -> object:
    """A value of the same type that is not equal."""
    if isinstance(value, Status):
        return Status.OK if value is not Status.OK else Status.FLUSHED
    return {tuple: (), bool: value is False, str: "another"}.get(type(value), 99)


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_events__are_values(event: Event | Extent | TargetCopy) -> None:
    names = list(type(event).__annotations__)
    values = [getattr(event, name) for name in names]
    made: Callable[..., object] = type(event)
    assert made(*values) == event
    for index, name in enumerate(names):
        assert made(*[another(value) if at == index else value for at, value in enumerate(values)]) != event, name
    assert not hasattr(event, "__dict__")


def test_messages_received__extent_of_all() -> None:
    assert MessagesReceived(1, 2, 3, 10, None, 4096).extent == Extent(0, 4096, 30)
