"""A server that has lost its disk has no say: what it had acknowledged is on the others; one more of them is needed."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from nitro_emu.ebs.device import BLOCK_BYTES
from nitro_emu.ebs.errors import VolumeError
from nitro_emu.ebs.replicas import ReplicatedVolume
from tests.nitro_emu.ebs.histories import content, value_of
from tests.nitro_emu.ebs.virtual_disk import VirtualDisk
from tests.nitro_emu.ebs.virtual_servers import VOLUME, Link, Memory, Server, run


def test_it_is_filled_and_not_asked() -> None:
    async def main() -> None:
        servers = [Server(number, blocks=1, random=Random(1)) for number in range(3)]
        into = memoryview(bytearray(BLOCK_BYTES))
        async with _volume(servers) as volume:
            await volume.write(0, data=memoryview(content(1)), fua=False)
            servers[2].stop(loses_power=False)
            await volume.write(0, data=memoryview(content(2)), fua=False)
        servers[2].start()
        servers[1].stop(loses_power=False)
        servers[0].stop(loses_power=False)
        servers[0].disk = VirtualDisk()
        servers[0].ledger.mark(VOLUME, epoch=-1)
        servers[0].start()
        with pytest.raises(VolumeError, match=r"1 of 3 servers promise an epoch, and have kept what they had"):
            async with _volume(servers):
                pass
        servers[1].start()
        async with _volume(servers) as volume:
            await volume.read(0, into=into)
            assert value_of(into) == 2
            await volume.wait_whole()
        servers[1].stop(loses_power=False)
        async with _volume(servers) as volume:
            await volume.read(0, into=into)
            assert value_of(into) == 2

    run(main)


def _volume(servers: list[Server]) -> ReplicatedVolume:
    awake = asyncio.Event()
    awake.set()
    links = [Link(server, Random(2), writer=awake) for server in servers]
    return ReplicatedVolume("v", volume=VOLUME, size_bytes=BLOCK_BYTES, links=links, memory=Memory())
