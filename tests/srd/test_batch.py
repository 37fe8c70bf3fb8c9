"""srd.batch: many messages at a time, over loopback: in place, each once, and released once."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from devmem.region import Region
from srd.batch import MessageBatch, equal_parts
from srd.endpoint import Endpoint
from srd.errors import PeerError, UsageError
from srd.message import Message
from srd.peer import Peer
from srd.proto.events import Extent, MessagesReceived
from srd.proto.wire.status import Status
from srd.rx_queues import RxQueueTable
from tests.patience import PATIENCE_S
from tests.srd.loopback import SMALL, content, memory, pair

SEED = 31
COUNT = 1000


async def succeeded(endpoint: Endpoint, ids: range) -> None:
    """Wait until all requests have succeeded, each once."""
    open_ids = set(ids)
    async with asyncio.timeout(PATIENCE_S):
        while open_ids:
            for entry in await endpoint.completions.wait():
                assert entry.status is Status.OK
                ended = set(range(entry.first, entry.first + entry.count))
                assert ended <= open_ids
                open_ids -= ended


async def arrived(peer: Peer, count: int) -> list[bytes]:
    """Receive `count` messages, in batches."""
    found: list[bytes] = []
    async with asyncio.timeout(PATIENCE_S):
        while len(found) < count:
            with await peer.recv_batch() as taken:
                found += [taken.gather()] if isinstance(taken, Message) else map(bytes, taken.rows())
    return found


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
@pytest.mark.parametrize("length", [4, 64, 500, 4096, 8900])
async def test_post_send__each_arrives_once(host: str, length: int) -> None:
    payload = content(COUNT * length, seed=SEED)
    async with pair(host=host) as (one, two, here, there):
        with memory(payload) as region:
            offsets = np.random.default_rng(SEED).permutation(COUNT) * length
            ids = here.post_sends(region, offsets, lengths=length)
            assert len(ids) == COUNT
            found = await arrived(there, COUNT)
            await succeeded(one, ids)
        assert sorted(found) == sorted(payload[at : at + length] for at in range(0, len(payload), length))
        assert two._engine.queues.host.pool.free_bytes > 0


async def test_post_send__small_messages_arrive_together_and_are_copied_once_at_most() -> None:
    async with pair() as (one, two, here, there):
        with memory(content(64 * COUNT, seed=SEED)) as region:
            ids = here.post_sends(region, range(0, 64 * COUNT, 64), lengths=64)
            batches = 0
            count = 0
            async with asyncio.timeout(PATIENCE_S):
                while count < COUNT:
                    with await there.recv_batch() as taken:
                        count += taken.count if isinstance(taken, MessageBatch) else 1
                        batches += 1
            await succeeded(one, ids)
        assert batches < COUNT // 4
        assert two.bytes_copied <= 64 * COUNT


async def test_post_send__of_several_lengths_and_an_immediate() -> None:
    payload = content(1000, seed=SEED)
    async with pair() as (one, _, here, there):
        with memory(payload) as region:
            ids = here.post_sends(region, [0, 10, 20, 500], lengths=[10, 10, 30, 500], immediate=9)
            found = []
            async with asyncio.timeout(PATIENCE_S):
                for _ in ids:
                    with await there.recv() as message:
                        assert message.immediate == 9
                        found.append(message.gather())
            await succeeded(one, ids)
        assert sorted(found, key=len) == sorted(
            (payload[a:b] for a, b in ((0, 10), (10, 20), (20, 50), (500, 1000))), key=len
        )


async def test_post_send__to_a_peer_that_ends() -> None:
    async with pair() as (one, _, here, there):
        with memory(bytes(64)) as region:
            ids = here.post_sends(region, [0] * 100, lengths=64)
            await there.close()
            ended = 0
            async with asyncio.timeout(PATIENCE_S):
                while ended < len(ids):
                    ended += sum(entry.count for entry in await one.completions.wait())
            await here.wait_ended()
            with pytest.raises(PeerError):
                here.post_sends(region, [0], lengths=64)


async def test_recv__singly_out_of_a_batch_that_is_released_with_the_last() -> None:
    async with pair() as (one, two, here, there):
        with memory(content(64 * 30, seed=SEED)) as region:
            ids = here.post_sends(region, range(0, 64 * 30, 64), lengths=64)
            async with asyncio.timeout(PATIENCE_S):
                first = await there.recv()
                others = [await there.recv_batch() for _ in range(1)]
                rest = [
                    await there.recv()
                    for _ in range(28 - (others[0].count - 1 if isinstance(others[0], MessageBatch) else 0))
                ]
            await succeeded(one, ids)
            for message in (first, *others, *rest):
                message.release()
        assert there._core.acks._released_bytes == 64 * 30
        pool = two._engine.queues.host.pool
        assert pool._holds == [0] * pool.chunks


def test_equal_parts() -> None:
    with Region(4096) as region:
        parts = [
            (addresses - region.address, length)
            for addresses, length in equal_parts(region, [0, 9, 100, 5], [4, 4, 7, 4], most_bytes=10)
        ]
        assert [(found.tolist(), length) for found, length in parts] == [([0, 9], 4), ([100], 7), ([5], 4)]
        assert list(equal_parts(region, [], 4, most_bytes=10)) == []


@pytest.mark.parametrize(
    ("offsets", "lengths", "message"),
    [
        ([0, 4090], 10, "offsets: bytes 0 to 4100 are not within a region of 4096"),
        ([-1], 10, "offsets: bytes -1 to 9 are not within"),
        ([0], 101, "lengths: 101 to 101 bytes; a batch takes 0 to 100"),
        ([0], -1, "lengths: -1 to -1 bytes"),
        ([[0]], 1, "offsets: 2 dimensions; give one offset for each message"),
    ],
)
def test_equal_parts__refusals(offsets: list[int], lengths: int, message: str) -> None:
    with Region(4096) as region, pytest.raises(UsageError, match=message):
        list(equal_parts(region, offsets, lengths, most_bytes=100))


class Owner:
    """The queues of an endpoint, a batch in them, and what was released."""

    def __init__(self, region: Region) -> None:
        self.region = region
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as first:
            self.queues = RxQueueTable(SMALL, region, first=first, contexts=(), protections=None)
        self.returned: list[tuple[int, Sequence[Extent], int, int]] = []
        event = MessagesReceived(3, 7, 4, 10, 5, 100)
        self.queues.host.hold((event.extent,))
        self.batch = MessageBatch(event, queues=self.queues, release=self.release)

    def release(self, peer: int, extents: Sequence[Extent], size_bytes: int, messages: int) -> None:
        self.returned.append((peer, extents, size_bytes, messages))
        self.queues.drop(extents)


@pytest.fixture
def owner() -> Iterator[Owner]:
    with Region(SMALL.receive_region_bytes) as region:
        made = Owner(region)
        yield made
        made.queues.close()


@pytest.mark.parametrize(
    ("offsets", "lengths", "named"),
    [
        ([0.5], 1, "offsets: 0.5 is no integer"),
        (np.array([1.0]), 1, "offsets: 1.0 is no integer"),
        (["0"], 1, "offsets: '0' is no integer"),
        ([True], 1, "offsets: True is no integer"),
        ([0], 1.5, "lengths: 1.5 is no integer"),
        ([0, 1], [1, 2.5], "lengths: 2.5 is no integer"),
        ([0, 1], [1, 1, 1], "lengths: 3 of them for 2 messages"),
        ([1 << 70], 1, "offsets: 1180591620717411303424 is no integer that fits"),
        ([(1 << 63) - 1], 1, "offsets: bytes 9223372036854775807 to 9223372036854775808 are not within a region"),
    ],
)
def test_equal_parts__bad_flow(offsets: Any, lengths: Any, named: str) -> None:
    with Region(4096) as region, pytest.raises(UsageError, match=re.escape(named)):
        list(equal_parts(region, offsets, lengths, most_bytes=1000))


def test_batch__rows_are_the_regions_own_memory(owner: Owner) -> None:
    with owner.batch as taken:
        assert (taken.count, taken.length, taken.immediate) == (4, 10, 5)
        rows = taken.rows()
        owner.region.array[100 + 2 * 10 + 3] = 77
        assert rows[2, 3] == 77
        del rows
    taken.release()
    assert owner.returned == [(3, (Extent(0, 100, 40),), 40, 4)]
    with pytest.raises(UsageError, match="was released"):
        taken.rows()


def test_batch__abandoned_while_some_are_held(owner: Owner) -> None:
    one, left = owner.batch.take()
    assert left
    owner.batch.abandon()
    assert owner.returned == []
    one.release()
    assert len(owner.returned) == 1
