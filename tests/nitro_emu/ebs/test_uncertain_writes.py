"""A write that one server has, and no majority: it is not read, as it may be lost again."""

from __future__ import annotations

import asyncio
from random import Random

from nitro_emu.ebs.device import BLOCK_BYTES
from nitro_emu.ebs.replicas import ReplicatedVolume
from tests.nitro_emu.ebs.histories import content, value_of
from tests.nitro_emu.ebs.virtual_servers import VOLUME, Link, Memory, Server, run


def test_it_is_not_read_before_a_majority_has_it() -> None:
    async def main() -> None:
        random, awake = Random(1), asyncio.Event()
        awake.set()
        servers = [Server(number, blocks=1, random=random) for number in range(3)]
        links = [Link(server, random, writer=awake) for server in servers]
        volume = ReplicatedVolume("v", volume=VOLUME, size_bytes=BLOCK_BYTES, links=links, memory=Memory())
        into = memoryview(bytearray(BLOCK_BYTES))
        async with volume:
            await volume.write(0, data=memoryview(content(1)), fua=False)
            links[1].is_cut = links[2].is_cut = True
            write = asyncio.ensure_future(volume.write(0, data=memoryview(content(2)), fua=False))
            await asyncio.sleep(0.1)  # of virtual time
            assert servers[0].replica is not None
            servers[0].replica.store.read(0, into=into)
            assert value_of(into) == 2
            read = asyncio.ensure_future(volume.read(0, into=into))
            await asyncio.sleep(0.1)
            assert not read.done()
            write.cancel()
            servers[0].stop(loses_power=False)
            links[1].heal()
            links[2].heal()
            await read
            assert value_of(into) == 1
            servers[0].start()
            await volume.wait_whole()
            await volume.read(0, into=into)
            assert value_of(into) == 1
        assert {_value(server) for server in servers} == {1}

    run(main)


def _value(server: Server) -> int:
    into = memoryview(bytearray(BLOCK_BYTES))
    assert server.replica is not None
    server.replica.store.read(0, into=into)
    return value_of(into)
