"""srd.batch: many messages at a time, over loopback: in place, each once, and released once."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import numpy as np
import pytest

from devmem.region import Region
from srd.batch import MessageBatch, equal_parts
from srd.endpoint import Endpoint
from srd.errors import UsageError
from srd.proto.wire.status import Status
from tests.patience import PATIENCE_S
from tests.srd.loopback import content, memory, pair, receive_all

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


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
@pytest.mark.parametrize("length", [4, 64, 500, 4096, 8900])
async def test_post_send__each_arrives_once(host: str, length: int) -> None:
    payload = content(COUNT * length, seed=SEED)
    async with pair(host=host) as (one, two, here, there):
        with memory(payload) as region:
            offsets = np.random.default_rng(SEED).permutation(COUNT) * length
            ids = here.post_sends(region, offsets, lengths=length)
            assert len(ids) == COUNT
            found = await receive_all(there, COUNT)
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
        with pytest.raises(UsageError, match="released"):
            taken.rows() if isinstance(taken, MessageBatch) else taken.gather()
        acks = there._core.acks
        assert (acks._released_bytes, acks._released_messages) == (64 * COUNT, COUNT)
        assert batches < COUNT // 4
        assert two.bytes_copied <= 64 * COUNT


def test_equal_parts() -> None:
    with Region(4096) as region:
        parts = [
            (addresses - region.address, length)
            for addresses, length in equal_parts(region, [0, 9, 100, 5], [4, 4, 7, 4], most_bytes=10)
        ]
        assert [(found.tolist(), length) for found, length in parts] == [([0, 9], 4), ([100], 7), ([5], 4)]
        assert list(equal_parts(region, [], 4, most_bytes=10)) == []


@pytest.mark.parametrize(
    ("offsets", "lengths", "named"),
    [
        ([0, 4090], 10, "offsets: bytes 0 to 4100 are not within a region of 4096"),
        ([-1], 10, "offsets: bytes -1 to 9 are not within"),
        ([0], 1001, "lengths: 1001 to 1001 bytes; a batch takes 0 to 1000"),
        ([0], -1, "lengths: -1 to -1 bytes"),
        ([[0]], 1, "offsets: 2 dimensions; give one offset for each message"),
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
