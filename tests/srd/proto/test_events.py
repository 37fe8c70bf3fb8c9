from __future__ import annotations

import pytest

from srd.proto.events import (
    Completion,
    Event,
    Extent,
    MessageAborted,
    MessageReceived,
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
    MessageAborted(peer=1, released=(Extent(0, 4096, 10),)),
    WriteReceived(peer=1, length=10, immediate=3),
    Completion(peer=1, request=7, status=Status.FLUSHED),
    TargetCopy(target=1, region_offset=4096, length=10),
    Extent(0, 4096, 10),
]


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_events__are_values(event: Event | Extent | TargetCopy) -> None:
    """They cross from the core to its owner, which must not be able to change the core by them."""
    for name in type(event).__annotations__:
        with pytest.raises(AttributeError):
            setattr(event, name, 99)
    assert not hasattr(event, "__dict__")
    assert hash(event) == hash(event)
