"""A host and a server are lost for good at the same time, in the middle of writes: what was acknowledged is read."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass

import pytest

from nitro_emu.ebs.device import BLOCK_BYTES
from nitro_emu.ebs.errors import VolumeError
from nitro_emu.ebs.replicas import ReplicatedVolume
from tests.nitro_emu.ebs.histories import BLOCKS, SERVERS, History
from tests.nitro_emu.ebs.virtual_servers import VOLUME, Link, Memory, Server

HOSTS = 3


@dataclass
class LossHistory(History):
    """Hosts that are lost in the middle of their writes, and then a server: the others have no more than a majority."""

    async def _main(self) -> None:
        self.servers = [Server(number, blocks=BLOCKS, random=self.random) for number in range(SERVERS)]
        lost = self.random.randrange(SERVERS)
        for _ in range(HOSTS):
            await self._lost_host(heard_last=lost)
            with suppress(VolumeError):
                await self._short_attachment(away=self.random.choice((None, lost - 1, lost - 2)))
        self.servers[lost].stop(loses_power=True)
        await self._check_the_two(lost)

    def _slowly_repaired(self, links: list[Link]) -> ReplicatedVolume:
        """Return a volume whose replicas lack what they have missed for longer than a host lives."""
        return ReplicatedVolume(
            "v", volume=VOLUME, size_bytes=BLOCKS * BLOCK_BYTES, links=links, memory=Memory(),
            repair_bytes_per_s=BLOCK_BYTES / 2,
        )  # fmt: skip

    async def _lost_host(self, *, heard_last: int) -> None:
        """Have a host write, and its links be cut one after the other, so that some replica is written to alone."""
        links, _ = self._links()
        with suppress(VolumeError):
            async with self._slowly_repaired(links) as volume, self.users(volume):
                await asyncio.sleep(self.random.uniform(0.0, 0.4))
                for link in sorted(links, key=lambda link: (link is links[heard_last], self.random.random())):
                    link.is_cut = True
                    await asyncio.sleep(self.random.uniform(0.0, 0.1))
        await asyncio.sleep(2.5)  # a lease

    async def _short_attachment(self, *, away: int | None) -> None:
        """Have a host read for a moment, of all servers or but one, and detach or be lost."""
        links, _ = self._links()
        if away is not None:
            links[away].is_cut = True
        async with self._slowly_repaired(links) as volume:
            self.reads_only.add(volume)
            async with self.users(volume):
                await asyncio.sleep(self.random.choice((0.0, 0.2)))
                if self.random.random() < 0.5:
                    for link in links:
                        link.is_cut = True
        await asyncio.sleep(2.5)

    async def _check_the_two(self, lost: int) -> None:
        links, _ = self._links()
        async with self._volume(links) as volume:
            await self.read_all(volume)
            await asyncio.sleep(10)  # of virtual time
            assert [each.missing_blocks for each in volume.status()] == [0] * SERVERS
        del self.servers[lost]
        self._check_alike()


def test_what_was_acknowledged_outlives_a_host_and_a_server() -> None:
    histories = [LossHistory(seed).run() for seed in range(30)]
    assert sum(each.done for each in histories) > 10 * len(histories)


@pytest.mark.long
@pytest.mark.parametrize("hundred", range(1, 10))
def test_a_thousand_hosts_and_servers_are_lost(hundred: int) -> None:
    for seed in range(100 * hundred, 100 * hundred + 100):
        LossHistory(seed).run()
