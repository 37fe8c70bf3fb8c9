"""A writer that stops for longer than its lease, while another one writes through two of the three servers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from random import Random
from typing import Any

from nitro_emu.ebs.device import BLOCK_BYTES
from nitro_emu.ebs.errors import DeviceError
from nitro_emu.ebs.replicas import ReplicatedVolume
from nitro_emu.ebs.server.replica import Replica
from tests.nitro_emu.ebs.histories import content, value_of
from tests.nitro_emu.ebs.virtual_servers import VOLUME, Link, Memory, Server, run


def read_after_a_stop(away: int) -> str:
    """Return how the first writer's read ends. Raises AssertionError if it is old; `away`: who missed the second."""

    async def read(first: ReplicatedVolume, _: ReplicatedVolume) -> None:
        assert await _value(first) == 2, "an old block was read"

    return _outcome(read, away=away)


def write_after_a_stop(away: int, *, make_replica: Callable[..., Replica] = Replica) -> str:
    """Return how the first writer's write ends. Raises AssertionError if it is acknowledged, and not read then."""

    async def write(first: ReplicatedVolume, second: ReplicatedVolume) -> None:
        await first.write(0, data=memoryview(content(3)), fua=False)
        assert await _value(second) == 3, "an acknowledged write is lost"

    return _outcome(write, away=away, make_replica=make_replica)


def _outcome(
    use: Callable[[ReplicatedVolume, ReplicatedVolume], Coroutine[Any, Any, None]],
    *,
    away: int,
    make_replica: Callable[..., Replica] = Replica,
) -> str:
    """Return what the first writer is told after its stop, beside a second one that has written since."""
    outcome = ""

    async def main() -> None:
        nonlocal outcome
        async with _two_writers(away, make_replica) as (first, second):
            try:
                await use(first, second)
            except DeviceError as error:
                outcome = str(error)

    run(main)
    return outcome


@asynccontextmanager
async def _two_writers(
    away: int, make_replica: Callable[..., Replica]
) -> AsyncIterator[tuple[ReplicatedVolume, ReplicatedVolume]]:
    """Have a writer that goes on after a stop, and the one that has come meanwhile."""
    random = Random(away)
    servers = [Server(number, blocks=1, random=random, make_replica=make_replica) for number in range(3)]
    first_runs, second_runs = asyncio.Event(), asyncio.Event()
    first_runs.set()
    second_runs.set()
    async with _volume([Link(server, random, writer=first_runs) for server in servers]) as first:
        await first.write(0, data=memoryview(content(1)), fua=False)
        first_runs.clear()
        links = [Link(server, random, writer=second_runs) for server in servers]
        links[away].is_cut = True
        async with _volume(links) as second:
            await second.write(0, data=memoryview(content(2)), fua=False)
            first_runs.set()
            yield first, second


async def _value(volume: ReplicatedVolume) -> int:
    into = memoryview(bytearray(BLOCK_BYTES))
    await volume.read(0, into=into)
    return value_of(into)


def _volume(links: list[Link]) -> ReplicatedVolume:
    return ReplicatedVolume("v", volume=VOLUME, size_bytes=BLOCK_BYTES, links=links, memory=Memory())
