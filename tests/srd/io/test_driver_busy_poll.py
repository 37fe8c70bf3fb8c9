"""srd.io.driver: spinning instead of sleeping, rest only in a stream, and staying awake between messages to and fro."""

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
        rest = driver.Driver._pause

        def noting(self: driver.Driver, heard_at: float | None) -> None:
            rest(self, heard_at)
            rested[self] |= self._rest_until is not None

        monkeypatch.setattr(driver.Driver, "_pause", noting)
        one.post(peer, request=20, offset=0, length=4 << 20)
        await two.until(received, count=21)
        await one.until(completed, count=21)
        assert all(rested.values())
        rested[two.driver] = False
        for request in range(21, 221):  # messages of a packet each, many at once
            one.post(peer, request=request, offset=0, length=9000)
        await two.until(received, count=221)
        assert rested[two.driver]


class Process:
    """What the kernel says of this thread."""

    RUSAGE_THREAD = 1

    def __init__(self) -> None:
        self.ru_nivcsw = 7

    def getrusage(self, _who: int) -> Process:
        return self


@pytest.mark.sources
async def test_awake__where_messages_follow_closely_and_nobody_else_wants_the_processor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    process = Process()
    monkeypatch.setattr(driver, "resource", process)
    monkeypatch.setattr(driver, "CALM_S", PATIENCE_S)
    async with node(accepting=True) as two, node(accepting=False) as one:
        peer = await open_pair(one, two)
        fill(one, 4 << 20)
        awake = []
        request = 0

        async def exchange(times: int) -> None:
            nonlocal request
            for _ in range(times):
                one.post(peer, request=request, offset=0, length=100)
                request += 1
                await one.until(completed, count=request)
                awake.append(one.driver._awake)

        await exchange(3)
        assert not any(awake), "each came longer after the one before"
        one.driver._stay_awake_s = PATIENCE_S
        await exchange(3)
        assert not any(awake), "the processor was taken away a moment ago"
        monkeypatch.setattr(driver, "CALM_S", 0.0)
        process.ru_nivcsw += 1
        await exchange(3)
        assert awake[-1]
        monkeypatch.setattr(driver, "CALM_S", PATIENCE_S)
        one.driver._stay_awake_s = 0.02
        process.ru_nivcsw += 1
        one.driver._awake_until = 0.0
        await asyncio.sleep(0.001)
        await exchange(1)
        assert not awake[-1], "it was taken away again"


@pytest.mark.sources
async def test_awake__ends_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "resource", Process())
    monkeypatch.setattr(driver, "CALM_S", 0.0)
    async with node(accepting=True) as two, node(accepting=False) as one:
        peer = await open_pair(one, two)
        fill(one, 4 << 20)
        one.driver._stay_awake_s = 0.05
        for request in range(2):
            one.post(peer, request=request, offset=0, length=100)
            await one.until(completed, count=request + 1)
        awake = [one.driver._awake]
        await asyncio.sleep(0.2)
        assert [*awake, one.driver._awake, two.driver._awake] == [True, False, False]
