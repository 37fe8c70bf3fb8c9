"""srd.opening, srd.client and the iterators over loopback: the forms that asyncio's users know."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

import srd
from srd.endpoint import Endpoint
from srd.errors import PeerError, SrdError
from srd.peer import Peer
from srd.proto.wire.status import Status
from tests.patience import PATIENCE_S
from tests.srd.loopback import SMALL, endpoints, open_files, pair, receive


async def test_connect__as_context_manager_and_awaited() -> None:
    files = open_files()
    async with endpoints(SMALL) as (one, two):
        async with one.connect("127.0.0.1", two.address[1]) as here, await two.accept() as there:
            await here.send(b"first")
            assert await receive(there) == b"first"
        assert await here.wait_ended() is await there.wait_ended() is Status.OK
        again = await one.connect("127.0.0.1", two.address[1])
        assert not again.ended
    assert await again.wait_ended() is Status.OK
    assert open_files() == files


@pytest.mark.parametrize("awaited", [False, True])
async def test_connect__a_client_closes_its_endpoint_with_its_peer(awaited: bool) -> None:  # noqa: FBT001
    async with asyncio.timeout(PATIENCE_S), Endpoint.listen("127.0.0.1", 0, config=SMALL) as two:
        files = open_files()
        if awaited:
            peer = await srd.connect("127.0.0.1", two.address[1], config=SMALL)
            await peer.send(b"hello")
            await peer.close()
            await peer.close()  # has no further effect
        else:
            async with srd.connect("127.0.0.1", two.address[1], config=SMALL) as peer:
                await peer.send(b"hello")
        assert open_files() == files
        async with await two.accept() as there:
            assert await receive(there) == b"hello"


async def test_connect__a_client_that_finds_nobody_leaves_nothing_open_bad_flow() -> None:
    files = open_files()
    async with asyncio.timeout(PATIENCE_S):
        with pytest.raises(SrdError):
            await srd.connect("127.0.0.1", 9, config=SMALL)
        with pytest.raises(SrdError, match="unknown host"):
            async with srd.connect("no such host", 9, config=SMALL):
                pass
    assert open_files() == files


TASKS: list[Callable[[Any], Any]] = [
    asyncio.create_task,
    asyncio.ensure_future,
    lambda opening: asyncio.wait_for(opening, PATIENCE_S),
    asyncio.gather,
]


@pytest.mark.parametrize("run", TASKS)
async def test_opening__is_a_coroutine_to_asyncio(run: Callable[[Any], Any]) -> None:
    async with asyncio.timeout(PATIENCE_S), Endpoint.listen("127.0.0.1", 0, config=SMALL) as two:
        opened = await run(srd.connect("127.0.0.1", two.address[1], config=SMALL))
        for peer in opened if isinstance(opened, list) else [opened]:
            assert isinstance(peer, Peer)
            await peer.close()


async def test_opening__given_up_before_it_began() -> None:
    srd.connect("127.0.0.1", 9).close()  # else: a warning, which is an error here


@pytest.mark.parametrize("after", [0, 1, 2, 3, 5, 10, 30])
async def test_opening__cancelled_at_any_point_leaves_nothing_open(after: int) -> None:
    async with asyncio.timeout(PATIENCE_S), Endpoint.listen("127.0.0.1", 0, config=SMALL) as two:
        files = open_files()
        opening = asyncio.create_task(srd.connect("127.0.0.1", two.address[1], config=SMALL))
        for _ in range(after):
            await asyncio.sleep(0)
        opening.cancel()
        await asyncio.wait([opening])
        if not opening.cancelled():
            await opening.result().close()
        assert open_files() == files


# -- iterators ------------------------------------------------------------------------------------------------------


async def test_peer__iterates_over_messages_until_it_is_closed() -> None:
    async with pair() as (_, _, here, there):
        for number in range(5):
            await here.send(bytes([number]))
        await here.close()
        assert sorted([message.data() async for message in there]) == [bytes([number]) for number in range(5)]
        assert [message async for message in there] == [], "and again"


async def test_peer__iteration_ends_when_another_task_closes_it() -> None:
    async with pair() as (_, _, here, _):

        async def read() -> list[bytes]:
            return [message.data() async for message in here]

        reading = asyncio.create_task(read())
        await asyncio.sleep(0)
        await here.close()
        assert await reading == []


async def test_peer__iteration_raises_when_the_peer_fails_bad_flow() -> None:
    async with pair() as (one, _, _, there):
        one._engine.driver.close()  # so that it does not even say goodbye
        with pytest.raises(PeerError) as caught:
            async for _ in there:
                pass
        assert caught.value.status is Status.LOCAL_ERROR_UNRESP_REMOTE


async def test_endpoint__iterates_over_peers_until_it_is_closed() -> None:
    async with asyncio.timeout(PATIENCE_S), Endpoint.listen("127.0.0.1", 0, config=SMALL) as two:

        async def serve() -> list[bytes]:
            said = []
            async for peer in two:
                async with peer:
                    said += [message.data() async for message in peer]
                if len(said) == 3:
                    asyncio.get_running_loop().call_soon(lambda: asyncio.ensure_future(two.close()))
            return said

        serving = asyncio.create_task(serve())
        for number in range(3):
            async with srd.connect("127.0.0.1", two.address[1], config=SMALL) as peer:
                await peer.send(bytes([number]))
        assert await serving == [b"\0", b"\1", b"\2"]


async def test_endpoint__iteration_raises_when_it_fails_bad_flow() -> None:
    async with asyncio.timeout(PATIENCE_S), Endpoint.listen("127.0.0.1", 0, config=SMALL) as two:
        two._on_failure("internal error: no")
        with pytest.raises(SrdError, match="internal error: no"):
            async for _ in two:
                pass
