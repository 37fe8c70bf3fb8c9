"""A writer that stops for longer than its lease, while another one writes through two of the three servers."""

from __future__ import annotations

import asyncio
from random import Random

from nitro_emu.ebs.device import BLOCK_BYTES
from nitro_emu.ebs.errors import DeviceError
from nitro_emu.ebs.replicas import ReplicatedVolume
from tests.nitro_emu.ebs.histories import content, value_of
from tests.nitro_emu.ebs.virtual_servers import VOLUME, Link, Memory, Server, run


def read_after_a_stop(away: int) -> str:
    """Return how the first writer's read ends. Raises AssertionError if it is old; `away`: who missed the second."""
    outcome = ""

    async def main() -> None:
        nonlocal outcome
        random = Random(away)
        servers = [Server(number, blocks=1, random=random) for number in range(3)]
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
            into = memoryview(bytearray(BLOCK_BYTES))
            try:
                await first.read(0, into=into)
            except DeviceError as error:
                outcome = str(error)
            else:
                assert value_of(into) == 2, "an old block was read"

    run(main)
    return outcome


def _volume(links: list[Link]) -> ReplicatedVolume:
    return ReplicatedVolume("v", volume=VOLUME, size_bytes=BLOCK_BYTES, links=links, memory=Memory())
