"""A server that has stopped is left before it holds the memory of all writes."""

from __future__ import annotations

import asyncio
from random import Random

from nitro_emu.ebs import link
from nitro_emu.ebs.device import BLOCK_BYTES
from nitro_emu.ebs.replicas import LAG_S, ReplicatedVolume
from tests.nitro_emu.ebs.histories import content
from tests.nitro_emu.ebs.virtual_servers import CALL_S, VOLUME, Buffer, Link, Memory, Server, run


class LittleMemory(Memory):
    """Four buffers."""

    is_short = True

    def __init__(self) -> None:
        self._free = asyncio.Semaphore(4)

    async def take(self, length_bytes: int) -> Buffer:
        await self._free.acquire()
        return _Counted(length_bytes, self._free)


class _Counted(Buffer):
    def __init__(self, length_bytes: int, free: asyncio.Semaphore) -> None:
        super().__init__(length_bytes)
        self._free = free

    def give_back(self) -> None:
        super().give_back()
        self._free.release()


def test_writes_go_on() -> None:
    async def main() -> None:
        random, awake, loop = Random(1), asyncio.Event(), asyncio.get_running_loop()
        awake.set()
        servers = [Server(number, blocks=1, random=random) for number in range(3)]
        links: list[link.ServerLink] = [Link(server, random, writer=awake) for server in servers]
        volume = ReplicatedVolume("v", volume=VOLUME, size_bytes=BLOCK_BYTES, links=links, memory=LittleMemory())
        longest_s = 0.0
        async with volume:
            servers[2].is_awake.clear()
            for value in range(1, 30):
                began_at = loop.time()
                await volume.write(0, data=memoryview(content(value)), fua=False)
                longest_s = max(longest_s, loop.time() - began_at)
            servers[2].is_awake.set()
            await volume.wait_whole()
        assert longest_s < LAG_S + 0.05 < CALL_S

    run(main)
