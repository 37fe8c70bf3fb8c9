"""What a server has missed is given to it, at a rate, and what it has lost."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from nitro_emu.ebs.device import BLOCK_BYTES
from nitro_emu.ebs.replicas import ReplicatedVolume
from nitro_emu.ebs.server.entries import ENTRY_BYTES, EXTENT_BLOCKS
from tests.nitro_emu.ebs.histories import content, value_of
from tests.nitro_emu.ebs.virtual_servers import VOLUME, Link, Memory, Server, run

BLOCKS = 40


class Stage:
    """A volume on three servers, whose second one may be away."""

    def __init__(self, *, blocks: int = BLOCKS, repair_bytes_per_s: float = 1e9) -> None:
        random, awake = Random(1), asyncio.Event()
        awake.set()
        self.servers = [Server(number, blocks=blocks, random=random) for number in range(3)]
        links = [Link(server, random, writer=awake) for server in self.servers]
        self.volume = ReplicatedVolume(
            "v", volume=VOLUME, size_bytes=blocks * BLOCK_BYTES, links=links, memory=Memory(),
            repair_bytes_per_s=repair_bytes_per_s,
        )  # fmt: skip

    async def write_all(self, *, first_value: int) -> None:
        for block in range(BLOCKS):
            await self.volume.write(block * BLOCK_BYTES, data=memoryview(content(first_value + block)), fua=False)

    async def read_all(self) -> list[int]:
        into = memoryview(bytearray(BLOCKS * BLOCK_BYTES))
        await self.volume.read(0, into=into)
        return [value_of(into[at : at + BLOCK_BYTES]) for at in range(0, len(into), BLOCK_BYTES)]


def test_a_server_that_was_away_is_repaired_at_a_rate() -> None:
    async def main() -> None:
        stage = Stage(repair_bytes_per_s=10 * BLOCK_BYTES)
        loop = asyncio.get_running_loop()
        async with stage.volume as volume:
            stage.servers[1].stop(loses_power=True)
            await stage.write_all(first_value=1)
            stage.servers[1].start()
            began_at = loop.time()
            await asyncio.sleep(1)  # of virtual time
            assert volume.status()[1].is_member
            assert BLOCKS / 2 < volume.status()[1].missing_blocks < BLOCKS
            assert await stage.read_all() == list(range(1, BLOCKS + 1))  # of the others
            await volume.wait_whole()
            assert 0.9 * BLOCKS / 10 < loop.time() - began_at < 2 * BLOCKS / 10 + 1
            for other in (0, 2):
                stage.servers[other].stop(loses_power=False)
            assert stage.servers[1].replica is not None
            into = memoryview(bytearray(BLOCKS * BLOCK_BYTES))
            stage.servers[1].replica.store.read(0, into=into)
            assert value_of(into[-BLOCK_BYTES:]) == BLOCKS
            for other in (0, 2):
                stage.servers[other].start()

    run(main)


def test_a_server_that_has_missed_many_writes_is_let_in_at_once() -> None:
    """Each of them is a command that it has to do before it is one of them, far more than a late server may take."""
    blocks = EXTENT_BLOCKS

    async def main() -> None:
        stage = Stage(blocks=blocks)
        async with stage.volume as volume:
            stage.servers[1].stop(loses_power=False)
            for block in range(blocks):
                await volume.write(block * BLOCK_BYTES, data=memoryview(content(block + 1)), fua=False)
            epoch = volume.epoch
            stage.servers[1].start()
            await asyncio.sleep(2)  # of virtual time
            assert volume.status()[1].is_member
            assert volume.epoch <= epoch + 2  # without it, and with it
            await volume.wait_whole()

    run(main)


@pytest.mark.parametrize("place", [100, 39 * BLOCK_BYTES + 4095])
def test_a_corrupt_block_is_read_from_another_server_and_repaired(place: int) -> None:
    async def main() -> None:
        stage = Stage()
        async with stage.volume as volume:
            await stage.write_all(first_value=1)
            stage.servers[1].disk.files["data"].cached[place] ^= 1
            await asyncio.sleep(1)  # of virtual time: the last write is everywhere
            for _ in range(3):  # servers take turns
                assert await stage.read_all() == list(range(1, BLOCKS + 1))
            await volume.wait_whole()
        assert stage.servers[1].replica is not None
        into = memoryview(bytearray(BLOCKS * BLOCK_BYTES))
        assert stage.servers[1].replica.store.read(0, into=into)

    run(main)


def test_an_entry_that_is_corrupt_is_decided_again_and_its_block_repaired() -> None:
    async def main() -> None:
        stage = Stage()
        async with stage.volume as volume:
            await stage.write_all(first_value=1)
            await asyncio.sleep(1)  # of virtual time: the last write is everywhere
            assert stage.servers[1].replica is not None
            stage.servers[1].replica.store.digest(0)  # from before it is corrupt
            stage.servers[1].disk.files["entries"].cached[7 * ENTRY_BYTES] ^= 1
            for _ in range(3):  # servers take turns
                assert await stage.read_all() == list(range(1, BLOCKS + 1))
            await asyncio.sleep(1)  # of virtual time: it is let in again
            await volume.wait_whole()
        assert stage.servers[1].replica is not None
        into = memoryview(bytearray(BLOCKS * BLOCK_BYTES))
        assert stage.servers[1].replica.store.read(0, into=into)
        assert value_of(into[7 * BLOCK_BYTES :][:BLOCK_BYTES]) == 8

    run(main)
