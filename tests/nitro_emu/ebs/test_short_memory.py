"""Reads that have no answer wait for it, and not for memory that only their ends would free."""

from __future__ import annotations

import asyncio
from random import Random

from nitro_emu.ebs import link
from nitro_emu.ebs.device import BLOCK_BYTES
from nitro_emu.ebs.hedge import MOST_S
from nitro_emu.ebs.replicas import ReplicatedVolume
from tests.nitro_emu.ebs.histories import content, value_of
from tests.nitro_emu.ebs.virtual_servers import VOLUME, Buffer, Link, Memory, Server, run

SLOTS = 4


class CountedMemory(Memory):
    """As `LinkMemory` has it."""

    def __init__(self) -> None:
        self.free = SLOTS
        self._count = asyncio.Semaphore(SLOTS)

    @property
    def is_short(self) -> bool:  # type: ignore[override]
        return self.free < SLOTS // 2

    async def take(self, length_bytes: int) -> Buffer:
        await self._count.acquire()
        self.free -= 1
        return CountedBuffer(length_bytes, self)

    def give_back(self) -> None:
        self.free += 1
        self._count.release()


class CountedBuffer(Buffer):
    def __init__(self, length_bytes: int, memory: CountedMemory) -> None:
        super().__init__(length_bytes)
        self._memory = memory

    def give_back(self) -> None:
        super().give_back()
        self._memory.give_back()


def test_reads_end_when_servers_answer_late() -> None:
    async def main() -> None:
        random, awake, memory = Random(1), asyncio.Event(), CountedMemory()
        awake.set()
        servers = [Server(number, blocks=1, random=random) for number in range(3)]
        links: list[link.ServerLink] = [Link(server, random, writer=awake) for server in servers]
        volume = ReplicatedVolume("v", volume=VOLUME, size_bytes=BLOCK_BYTES, links=links, memory=memory)
        async with volume:
            await volume.write(0, data=memoryview(content(1)), fua=False)
            await volume.wait_whole()
            for server in servers:
                server.is_awake.clear()
            into = [memoryview(bytearray(BLOCK_BYTES)) for _ in range(SLOTS)]
            reads = [asyncio.ensure_future(volume.read(0, into=each)) for each in into]
            await asyncio.sleep(3 * MOST_S)  # of virtual time
            for server in servers:
                server.is_awake.set()
            async with asyncio.timeout(1.0):
                await asyncio.gather(*reads)
            assert [value_of(each) for each in into] == [1] * SLOTS
            await asyncio.sleep(1.0)
            assert memory.free == SLOTS

    run(main)
