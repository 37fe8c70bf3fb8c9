"""Peers of different datagram sizes on one endpoint, beside attackers: every byte of every message, on real sockets.

The bytes of a message depend on its sender, its number and their offset, so that misplaced
bytes show.
"""

from __future__ import annotations

import asyncio
import random
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import numpy as np
import numpy.typing as npt
import pytest

from devmem.region import Region
from devmem.registry import Access
from srd.config import EndpointConfig
from srd.endpoint import Endpoint
from srd.io.syscalls import UDP_SEGMENT
from srd.proto.config import ProtocolConfig
from srd.proto.wire.data import HEADER_BYTES, VERSION, PacketType
from srd.proto.wire.status import Status
from tests.patience import PATIENCE_S
from tests.srd.loopback import SMALL, endpoints

MESSAGE_BYTES = 1 << 20
MESSAGES = 24
IN_FLIGHT = 4
TRAIN_EVERY_BYTES = 128 << 10


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


async def send_all(port: int, datagram_bytes: int) -> list[Status]:
    """Send patterned messages, some at a time; return their statuses."""
    slots = asyncio.Semaphore(IN_FLIGHT)
    async with await Endpoint.open(towards="127.0.0.1", config=config(datagram_bytes)) as endpoint:
        peer = await endpoint.connect("127.0.0.1", port=port)

        async def send(message: int) -> Status:
            length = MESSAGE_BYTES - message % 3 * (datagram_bytes - HEADER_BYTES) - message % 2
            async with slots:
                with Region(length) as region:
                    region.array[:length] = pattern(datagram_bytes, message, length)
                    return await peer.post_send(
                        region, offset=0, length=length, immediate=datagram_bytes << 8 | message
                    )

        return await asyncio.gather(*(send(message) for message in range(MESSAGES)))


async def check_all(endpoint: Endpoint) -> dict[int, int]:
    """Receive from the next peer and compare every byte; return the number of messages by datagram size."""
    peer = await endpoint.accept()
    counts: dict[int, int] = {}
    for _ in range(MESSAGES):
        with await peer.recv() as message:
            assert message.immediate is not None
            sender, number = message.immediate >> 8, message.immediate & 0xFF
            got = np.frombuffer(message.gather(), np.uint8)
            wrong = np.flatnonzero(got != pattern(sender, number, message.length))
            assert not wrong.size, f"sender {sender}, message {number}: {wrong.size} bytes wrong from {wrong[0]} on"
            counts[sender] = counts.get(sender, 0) + 1
    return counts


@contextmanager
def attackers(endpoint: Endpoint, *, seed: int) -> Iterator[list[int]]:
    """Have trains of datagrams of one random size sent to an endpoint from a socket without a peer.

    One for every `TRAIN_EVERY_BYTES` that landed, so that their share does not depend on the machine's speed.
    """
    rng, loop, port = random.Random(seed), asyncio.get_running_loop(), endpoint.address[1]
    sent, due_at = [0], [0]
    timers: list[asyncio.Handle] = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as sock:

        def look() -> None:
            if endpoint.linear_bytes >= due_at[0]:
                due_at[0] = endpoint.linear_bytes + TRAIN_EVERY_BYTES
                send()
            timers[:] = [loop.call_later(0.001, look)]

        def send() -> None:
            size = rng.choice([HEADER_BYTES, 100, 592, 1028, 1100, 1472, 4096, 8972])
            header = bytes([VERSION, int(PacketType.DATA)]) + rng.randbytes(HEADER_BYTES - 2)
            train = (header + rng.randbytes(size - HEADER_BYTES)) * min(64, 65_000 // size, rng.randrange(2, 64))
            with suppress(BlockingIOError):
                sock.sendmsg([train], [(socket.SOL_UDP, UDP_SEGMENT, struct.pack("=H", size))], 0, ("127.0.0.1", port))
                sent[0] += 1

        timers.append(loop.call_soon(look))
        try:
            yield sent
        finally:
            timers[0].cancel()


@pytest.mark.parametrize("sizes", [(8972, 1472), (592, 576), (8972, 1472, 972, 592), (1023, 1024, 65_507)], ids=str)
async def test_send__senders_of_several_sizes_beside_attackers(sizes: tuple[int, ...]) -> None:
    """A change of the receive layout must not let slots overlap; small trains must be parsed right."""
    async with (
        asyncio.timeout(PATIENCE_S * 3),
        await Endpoint.listen("127.0.0.1", port=0, config=config(max(sizes))) as endpoint,
    ):
        with attackers(endpoint, seed=sum(sizes)) as trains:
            checked = asyncio.gather(*(check_all(endpoint) for _ in sizes))
            sent = await asyncio.gather(*(send_all(endpoint.address[1], size) for size in sizes))
            counts = await checked
            assert trains[0] > 0
    assert all(status is Status.OK for statuses in sent for status in statuses)
    assert {size: count for each in counts for size, count in each.items()} == dict.fromkeys(sizes, MESSAGES)


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
