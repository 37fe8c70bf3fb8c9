"""Messages that nobody receives pin little more than their bytes, on real sockets; every byte is compared."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import numpy as np
import pytest

from srd.batch import MessageBatch
from srd.endpoint import Endpoint
from srd.message import Message
from srd.peer import Peer
from tests.patience import PATIENCE_S
from tests.srd.loopback import SMALL, content, memory, pair, receive, receive_all

SEED = 41
CHUNK = SMALL.chunk_bytes
MESSAGES = "messages"
BATCHES = "batches"


async def fill(here: Peer, there: Peer, *, seed: int) -> None:
    """Send so much that the next message lands in another chunk, and consume it."""
    filling = content(CHUNK, seed=seed)
    await asyncio.wait_for(here.send(filling), PATIENCE_S)
    assert await receive(there) == filling


async def post(here: Peer, endpoint: Endpoint, *, kind: str, length: int, seed: int) -> list[bytes]:
    """Send a message, or a few together, that nobody receives; return them."""
    count = 4 if kind == BATCHES else 1
    parts = [content(length, seed=seed * 10 + each) for each in range(count)]
    if kind == MESSAGES:
        await here.send(parts[0])
        return parts
    with memory(b"".join(parts)) as region:
        ids = here.post_sends(region, np.arange(count) * length, lengths=length)
        left = len(ids)
        while left:
            left -= sum(entry.count for entry in await endpoint.completions.wait())
    return parts


@asynccontextmanager
async def two_pairs() -> AsyncIterator[tuple[Endpoint, Endpoint, list[tuple[Peer, Peer]]]]:
    """Give the endpoints, and two peers between them: both ends of each."""
    async with pair() as (one, two, here, there):
        other = await one.connect("127.0.0.1", two.address[1])
        yield one, two, [(here, there), (other, await two.accept())]


@pytest.mark.parametrize("kind", [MESSAGES, BATCHES])
@pytest.mark.parametrize("length", [1, 3000, 60_000])
async def test_unreceived__others_go_on(kind: str, length: int) -> None:
    """One peer's messages wait, in as many chunks as there are, which the other peer's messages have filled."""
    length = min(length, 8900) if kind == BATCHES else length
    async with two_pairs() as (one, two, [(here, there), (other, their)]):
        pool, sent = two._engine.queues.host.pool, list[bytes]()
        for number in range(pool.chunks + 8):
            if len(sent) * length < SMALL.protocol.receive_window_bytes // 2:
                sent += await post(here, one, kind=kind, length=length, seed=number)
            await fill(other, their, seed=number)
        assert pool.free_chunks >= pool.chunks // 4
        big = content(SMALL.protocol.max_message_bytes, seed=SEED)
        await asyncio.wait_for(other.send(big), PATIENCE_S)
        assert await receive(their) == big
        assert sorted(await receive_all(there, len(sent))) == sorted(sent)
        assert pool.free_chunks
        assert not sum(pool._holds)


async def test_unreceived__what_the_application_has_stays_where_it_is() -> None:
    async with two_pairs() as (one, two, [(here, there), (other, their)]):
        del one
        pool = two._engine.queues.host.pool
        await here.send(b"held")
        held = await there.recv()
        (view,) = held.views()
        at = held.extents
        waiting = []
        for number in range(pool.chunks):
            waiting.append(content(100, seed=number))
            await here.send(waiting[-1])
            await fill(other, their, seed=number)
        assert held.extents == at
        assert bytes(view) == b"held"
        assert [await receive(there) for _ in waiting] == waiting
        view.release()
        held.release()
        assert pool.free_chunks
        assert not sum(pool._holds)


async def test_unreceived__is_looked_at_a_few_times_only() -> None:
    """Nothing can be moved here: big messages fill the region."""
    async with two_pairs() as (_, two, [(here, there), (other, their)]):
        looked = 0

        def waiting() -> Iterator[Message | MessageBatch]:
            nonlocal looked
            looked += 1
            yield from there._inbox.untouched()
            yield from their._inbox.untouched()

        two._engine.queues.compact(waiting)
        size = SMALL.protocol.max_message_bytes
        big = [content(size - number * (size // 16), seed=number) for number in range(4)]
        await here.send(big[0])
        await here.send(big[1])
        await other.send(big[2])
        await other.send(big[3])
        assert two._engine.queues.host.memory_low
        copied = two.bytes_copied
        short = [content(1000, seed=number) for number in range(300)]
        for payload in short:
            await other.send(payload)
        assert 0 < looked <= 15
        assert two.bytes_copied - copied <= sum(map(len, short)), "the big ones stay where they are"
        assert [await receive(there) for _ in range(2)] == big[:2]
        assert [await receive(their) for _ in range(302)] == [*big[2:], *short]
