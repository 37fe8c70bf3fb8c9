"""Incomplete messages: their pieces, and packets that contradict them."""

from __future__ import annotations

from dataclasses import astuple

import pytest

from srd.proto.events import Extent
from srd.proto.recv.reassembly import Reassembly
from srd.proto.wire.data import ReceivedBurst
from tests.changed import changed

RUN = ReceivedBurst(
    path=0, path_sequence=0, context=1, psn=0, count=4, sent_us=0, message=3, length=350, immediate=0, offset=1000,
    key=0, payload_offset=5000, payload_bytes=350, segment_bytes=100, address="a:0", received_at=1.0,
)  # fmt: skip


@pytest.mark.parametrize(
    ("extents", "whole"),
    [
        ([Extent(100, 0, 250), Extent(0, 900, 100)], True),
        ([Extent(0, 0, 350)], True),
        ([Extent(0, 0, 200), Extent(150, 0, 150)], False),
        ([Extent(0, 0, 100), Extent(200, 0, 250)], False),
        ([], False),
    ],
)
def test_tile(extents: list[Extent], whole: bool) -> None:  # noqa: FBT001 - a row of the table
    inbound = Reassembly(RUN)
    inbound.extents = extents.copy()
    assert inbound.landed_ranges() is whole
    assert inbound.extents == sorted(extents, key=astuple)


def test_conflicts_with() -> None:
    inbound = Reassembly(RUN)
    assert inbound.conflicts_with(RUN) == ""
    assert inbound.conflicts_with(changed(RUN, length=351)) == "message 3 is announced with 351 and 350 bytes"
    assert inbound.conflicts_with(changed(RUN, flags=2)) == "message 3 is announced with flags 2 and 0"
