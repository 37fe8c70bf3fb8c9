"""scripts.benches.veth.worker.bulk: a damaged byte is detected at any offset."""

from __future__ import annotations

import socket

import pytest

from devmem.region import Region
from scripts.benches.veth.worker import bulk
from srd.message import Message
from srd.proto.events import Extent, MessageReceived
from srd.rx_queues import RxQueueTable
from tests.srd.loopback import SMALL


@pytest.mark.parametrize("damaged_at", [None, 0, 5000, bulk.MESSAGE_BYTES - 1])
def test_is_intact(damaged_at: int | None) -> None:
    expected, half, number = bulk.content(), bulk.MESSAGE_BYTES // 2, 3
    with (
        Region(SMALL.receive_region_bytes, name="test-bulk") as region,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as first,
    ):
        queues = RxQueueTable(SMALL, region, first=first, contexts=(), protections=None)
        region.array[: bulk.MESSAGE_BYTES] = expected[number * bulk.MESSAGE_BYTES : (number + 1) * bulk.MESSAGE_BYTES]
        if damaged_at is not None:
            region.array[damaged_at] ^= 1
        extents = (Extent(0, 0, half), Extent(half, half, half))
        queues.host.hold(extents)
        event = MessageReceived(peer=0, message=0, length=bulk.MESSAGE_BYTES, immediate=number, extents=extents)
        message = Message(event, queues=queues, release=lambda _peer, extents, _size, _messages: queues.drop(extents))
        assert bulk.is_intact(message, expected) == (damaged_at is None)
        message.release()
        queues.close()
