"""A second writer is refused as soon as it is known that the first one lives; a dead one's lease is waited for."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from nitro_emu.ebs.device import BLOCK_BYTES
from nitro_emu.ebs.errors import VolumeError
from nitro_emu.ebs.replicas import ATTACH_BOUND_S, ReplicatedVolume
from nitro_emu.ebs.server.replica import LEASE_S
from tests.nitro_emu.ebs.virtual_servers import VOLUME, Link, Memory, Server, run


def _links(servers: list[Server]) -> list[Link]:
    awake = asyncio.Event()
    awake.set()
    return [Link(server, Random(2), writer=awake) for server in servers]


def _volume(links: list[Link]) -> ReplicatedVolume:
    return ReplicatedVolume("v", volume=VOLUME, size_bytes=BLOCK_BYTES, links=links, memory=Memory())


def test_it_is_refused_once_the_first_one_has_been_heard() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        servers = [Server(number, blocks=1, random=Random(1)) for number in range(3)]
        async with _volume(_links(servers)):
            began_at = loop.time()
            with pytest.raises(VolumeError, match="v: cannot be attached: another writer has it: detach it there"):
                async with _volume(_links(servers)):
                    pass
            assert loop.time() - began_at < LEASE_S < ATTACH_BOUND_S / 2

    run(main)


def test_it_waits_for_the_lease_of_one_that_has_died() -> None:
    async def main() -> None:
        servers = [Server(number, blocks=1, random=Random(1)) for number in range(3)]
        links = _links(servers)
        async with _volume(links):
            for link in links:
                link.is_cut = True
            async with _volume(_links(servers)) as second:
                assert second.epoch == 2

    run(main)
