"""Messages that an application drops instead of releasing them: their memory and credit come back, with a warning."""

from __future__ import annotations

import asyncio
import gc
import warnings
from collections.abc import Iterator

import numpy as np
import pytest

from devmem.region import Region
from srd.batch import MessageBatch
from srd.endpoint import Endpoint
from srd.message import Message
from srd.peer import Peer
from tests.patience import PATIENCE_S
from tests.srd.loopback import SMALL, pair, receive, send

MIB = 1 << 20
WINDOW_BYTES = SMALL.protocol.receive_window_bytes


@pytest.fixture(autouse=True)
def collected() -> Iterator[None]:
    yield
    gc.collect()  # what this test has dropped warns in this test


async def all_memory_is_free(endpoint: Endpoint) -> bool:
    """Whether no chunk holds a message, once the loop has run what finalizers have left to it."""
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    pool = endpoint._engine.queues.host.pool
    return pool.free_chunks > 0 and not sum(pool._holds)  # it looks for views that have ended when asked


async def test_message__a_loop_without_with_goes_on_after_the_whole_window() -> None:
    async with pair() as (_, two, here, there):
        rounds = 3 * WINDOW_BYTES // MIB

        async def read() -> int:
            size_bytes = 0
            async for message in there:
                size_bytes += message.length
            return size_bytes

        reading = asyncio.create_task(read())
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for _ in range(rounds):
                await here.send(bytes(MIB))
            await here.close()
            assert await asyncio.wait_for(reading, PATIENCE_S) == rounds * MIB
        assert {warning.category for warning in caught} == {ResourceWarning}
        assert str(caught[0].message).startswith("<Message of 1048576 bytes> was dropped")
        assert await all_memory_is_free(two)


async def test_message__released_in_any_way_does_not_warn() -> None:
    async with pair() as (_, two, here, there):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for number in range(4):
                await here.send(b"abc", immediate=number)
            assert (await there.recv()).data() == b"abc"
            with await there.recv() as message:
                assert message.immediate == 1
            (await there.recv()).release()
            frags = (await there.recv()).frags()  # these are returned by token
            two.dontneed([(frag.token, 1) for frag in frags])
            del message, frags
            gc.collect()
        assert caught == []
        assert await all_memory_is_free(two)


async def test_message__its_frags_stay_held_without_it() -> None:
    async with pair() as (_, two, here, there):
        await here.send(b"abc")
        frags = (await there.recv()).frags()
        gc.collect()
        assert not await all_memory_is_free(two)
        assert two.dontneed([(frag.token, 1) for frag in frags]) == 1
        assert await all_memory_is_free(two)


async def test_message__its_views_keep_the_memory() -> None:
    async with pair() as (_, two, here, there):
        await here.send(b"abc")
        with pytest.warns(ResourceWarning, match="was dropped"):
            array = np.frombuffer(next((await there.recv()).views()), np.uint8)
        assert not await all_memory_is_free(two)
        assert bytes(array) == b"abc"
        del array
        assert await all_memory_is_free(two)


async def test_message__in_a_cycle_that_another_thread_collects() -> None:
    """The collector runs anywhere, in any thread: the engine may not be called from there."""
    async with pair() as (_, two, here, there):
        await here.send(bytes(MIB))
        cycle: list[object] = [await there.recv()]
        cycle.append(cycle)
        del cycle
        with pytest.warns(ResourceWarning, match="was dropped"):
            await asyncio.to_thread(gc.collect)
        assert await all_memory_is_free(two)
        await send(here, b"goes on")
        assert await receive(there) == b"goes on"


async def test_message__after_the_end_of_its_peer_and_its_endpoint() -> None:
    async with pair() as (_, _, here, there):
        await here.send(b"one")
        await here.send(b"two")
        first, second = await there.recv(), await there.recv()
        await here.close()
        await there.wait_ended()
        with pytest.warns(ResourceWarning, match="was dropped"):
            del first
        await asyncio.sleep(0)
    with pytest.warns(ResourceWarning, match="was dropped"):
        del second


async def test_message__never_received_comes_back_without_a_warning() -> None:
    async with pair() as (one, two, here, there):
        await here.send(bytes(MIB))
        await one.close()
        await there.wait_ended()
        assert not await all_memory_is_free(two)
        del there
        gc.collect()
        assert await all_memory_is_free(two)


async def send_batch(one: Endpoint, here: Peer) -> None:
    """Send 32 messages of 64 bytes; return when they are acknowledged."""
    with Region(4096) as region:
        here.post_sends(region, [0] * 32, lengths=64)
        done = 0
        while done < 32:
            done += sum(entry.count for entry in await one.completions.wait())


async def test_batch__comes_back_with_a_warning() -> None:
    async with pair() as (one, two, here, there):
        await send_batch(one, here)
        arrived: Message | MessageBatch = await there.recv_batch()
        assert isinstance(arrived, MessageBatch)
        with pytest.warns(ResourceWarning, match=f"<MessageBatch of {arrived.count} messages of 64 bytes> was dropped"):
            del arrived
        while there._inbox.messages:
            with await there.recv_batch():
                pass
        assert await all_memory_is_free(two)


async def test_batch__taken_singly_comes_back_with_its_last_message() -> None:
    async with pair() as (one, two, here, there):
        await send_batch(one, here)
        for _ in range(32):
            message = await there.recv()
            with pytest.warns(ResourceWarning, match="<Message of 64 bytes> was dropped"):
                del message
        assert await all_memory_is_free(two)
