"""Peers of different datagram sizes on one endpoint, beside attackers: every byte of every message, on real sockets.

The bytes of a message depend on its sender, its number and their offset, so that misplaced
bytes show.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from devmem.region import Region
from devmem.registry import Access
from srd.config import EndpointConfig
from srd.proto.config import ProtocolConfig
from srd.proto.wire.status import Status
from tests.srd.loopback import SMALL, endpoints


def pattern(sender: int, message: int, length: int) -> npt.NDArray[np.uint8]:
    """Return bytes of which no other message, and no other offset, has the same eight in a row."""
    lanes = np.arange(-(-length // 8), dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    lanes ^= np.uint64((sender << 48 | message << 24) * 0xD6E8FEB86659FD93 & 0xFFFFFFFFFFFFFFFF)
    return lanes.view(np.uint8)[:length]


def config(datagram_bytes: int) -> EndpointConfig:
    protocol = ProtocolConfig(paths=4, receive_window_bytes=8 << 20, max_message_bytes=4 << 20)
    return EndpointConfig(
        receive_region_bytes=24 << 20, chunk_bytes=256 << 10, datagram_bytes=datagram_bytes, protocol=protocol
    )


@pytest.mark.parametrize("datagram_bytes", [576, 592, 964, 1023, 1024, 1472])
async def test_write_and_read__of_datagrams_of_any_size(datagram_bytes: int) -> None:
    """Headers of small trains must not be in the placed payload."""
    length = 300_007
    async with endpoints(SMALL, opener=config(datagram_bytes)) as (one, two):
        peer = await one.connect("127.0.0.1", port=two.address[1])
        with Region(length) as source, Region(length + 200) as target, Region(length + 200) as back:
            source.array[:length] = pattern(1, 2, length)
            target.array[:] = back.array[:] = 0xA5
            rights = Access.LOCAL_WRITE | Access.REMOTE_WRITE | Access.REMOTE_READ
            there = two.register(target, offset=100, length=length, access=rights, peers=None)
            here = one.register(back, offset=100, length=length, access=Access.LOCAL_WRITE)
            key = there.remote_key
            assert await peer.post_write(source, offset=0, length=length, key=key, target_offset=0) is Status.OK
            assert await peer.post_read(here, offset=0, length=length, key=key, source_offset=0) is Status.OK
            for region in (target, back):
                assert (region.array[100 : 100 + length] == pattern(1, 2, length)).all()
                assert (region.array[:100] == 0xA5).all()
                assert (region.array[100 + length : length + 200] == 0xA5).all()
            two.deregister(there)
            one.deregister(here)
