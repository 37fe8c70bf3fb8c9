"""srd.io.driver: spinning instead of sleeping, and rest only in a stream."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from srd.io import driver
from srd.proto.status import Status
from tests.srd.io.node import completed, fill, node, open_pair, received
from tests.srd.loopback import PATIENCE_S, SMALL, content, memory, pair, receive, send

SEED = 13
SPINNING = replace(SMALL, busy_poll=True)


async def test_busy_poll__messages_to_and_fro_and_an_orderly_end() -> None:
    payload = content(2 << 20, seed=SEED)
    async with pair(config=SPINNING) as (one, _, here, there):
        for _ in range(20):
            assert await send(here, b"ping") is Status.OK
            assert await receive(there) == b"ping"
        with memory(payload) as region:
            sending = here.send(region, offset=0, length=len(payload))
            assert await receive(there) == payload
            assert await sending is Status.OK
        assert one._driver._rest_until is None
        await here.close()


async def test_busy_poll__leaves_other_tasks_their_turn() -> None:
    async with asyncio.timeout(PATIENCE_S), pair(config=SPINNING):
        before = asyncio.get_running_loop().time()
        await asyncio.sleep(0.01)
        assert asyncio.get_running_loop().time() - before < 1


async def test_busy_poll__spins_without_end_and_stops_at_the_close() -> None:
    async with pair(config=SPINNING) as (one, _, _, _):
        turns = 0
        poll = one._driver._epoll.poll

        class Counting:
            def poll(self, timeout: float) -> list[tuple[int, int]]:
                nonlocal turns
                turns += 1
                return poll(timeout)

            def __getattr__(self, name: str) -> object:
                return getattr(one_epoll, name)

        one_epoll = one._driver._epoll
        one._driver._epoll = Counting()  # type: ignore[assignment]  # what is used of it
        await asyncio.sleep(0.05)
        assert turns > 100 * driver.SPINS / 16
        one._driver._epoll = one_epoll


@pytest.mark.sources
async def test_rest__only_in_a_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "BUSY_S", PATIENCE_S)  # a busy host spaces turns out by itself
    async with node(accepting=True) as two, node(accepting=False) as one:
        peer = await open_pair(one, two)
        fill(one, 4 << 20)
        for request in range(20):
            one.post(peer, request=request, offset=0, length=(100, 64 << 10)[request % 2])
            await one.until(completed, count=request + 1)
            assert one.driver._rest_until is two.driver._rest_until is None
        rested = {one.driver: False, two.driver: False}
        rest = driver.Driver._rest

        def noting(self: driver.Driver, heard_at: float | None) -> None:
            rest(self, heard_at)
            rested[self] |= self._rest_until is not None

        monkeypatch.setattr(driver.Driver, "_rest", noting)
        one.post(peer, request=20, offset=0, length=4 << 20)
        await two.until(received, count=21)
        await one.until(completed, count=21)
        assert all(rested.values())
        rested[two.driver] = False
        for request in range(21, 221):  # messages of a packet each, many at once
            one.post(peer, request=request, offset=0, length=9000)
        await two.until(received, count=221)
        assert rested[two.driver]
