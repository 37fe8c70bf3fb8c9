"""A server is replaced by one that is empty: nothing is lost, and a writer that knows the old servers only is out."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from random import Random

import pytest

from nitro_emu.ebs.device import BLOCK_BYTES
from nitro_emu.ebs.errors import DeviceError, VolumeError
from nitro_emu.ebs.replicas import ReplicatedVolume
from nitro_emu.ebs.server.replica import Replica
from tests.nitro_emu.ebs.histories import BLOCKS, SERVERS, History, content, value_of
from tests.nitro_emu.ebs.virtual_servers import VOLUME, Link, Memory, Server, run

ROUNDS = 3


def _volume(links: list[Link], *, roster: int, blocks: int = 1, repair_bytes_per_s: float = 1e8) -> ReplicatedVolume:
    return ReplicatedVolume(
        "v", volume=VOLUME, size_bytes=blocks * BLOCK_BYTES, links=links, memory=Memory(), roster=roster,
        repair_bytes_per_s=repair_bytes_per_s,
    )  # fmt: skip


@dataclass
class ReplacementHistory(History):
    """Servers that are lost one after the other, in the middle of writes, and replaced; the old writer lives on."""

    async def _main(self) -> None:
        self.servers = [Server(number, blocks=BLOCKS, random=self.random) for number in range(SERVERS)]
        roster = 0
        for _ in range(ROUNDS):
            links, awake = self._links()
            at = self.random.randrange(SERVERS)
            async with suppressed(_volume(links, roster=roster, blocks=BLOCKS)) as old, self.users(old):
                await asyncio.sleep(self.random.uniform(0.1, 0.5))
                self._lose(links, awake, at)
                await asyncio.sleep(2.5)  # a lease, in which the old writer may write what it can
                self.servers[at] = Server(SERVERS + roster, blocks=BLOCKS, random=self.random, is_blank=True)
                roster += 1
                await self._new_writer(links, awake, roster=roster)
            for link in links:
                link.is_cut = True
        self.roster = roster
        await asyncio.sleep(2.5)
        await self._check_the_end()

    def _lose(self, links: list[Link], awake: asyncio.Event, at: int) -> None:
        """Lose a server, or have it left alone with its writer; and stop the writer, or cut it off from the others."""
        if self.random.random() < 0.5:
            self.servers[at].stop(loses_power=True)
        for link in links:
            link.is_cut = link is not links[at]
        if self.random.random() < 0.5:
            awake.clear()

    async def _new_writer(self, links: list[Link], awake: asyncio.Event, *, roster: int) -> None:
        """Have one attach the new servers, and be cut off from some of those while the old one comes back to others."""
        others, _ = self._links()
        async with _volume(others, roster=roster, blocks=BLOCKS) as volume, self.users(volume):
            await volume.wait_whole()
            await asyncio.sleep(self.random.uniform(0.0, 0.3))
            others[self.random.randrange(SERVERS)].is_cut = True
            awake.set()
            await asyncio.sleep(2.5)  # its lease there
            for link in links:
                link.is_cut = self.random.random() < 0.3
            await asyncio.sleep(self.random.uniform(0.5, 1.5))
        self.has_fenced = True

    def _volume(self, links: list[Link]) -> ReplicatedVolume:
        return _volume(links, roster=self.roster, blocks=BLOCKS)


class suppressed:  # noqa: N801 - as `contextlib.suppress`
    """Attach a volume for a block, whose end is that of a writer that is out."""

    def __init__(self, volume: ReplicatedVolume) -> None:
        self.volume = volume

    async def __aenter__(self) -> ReplicatedVolume:
        return await self.volume.__aenter__()

    async def __aexit__(self, *_: object) -> None:
        with suppress(VolumeError):
            await self.volume.__aexit__(None, None, None)


def test_histories_with_replacements_are_linearizable() -> None:
    histories = [ReplacementHistory(seed).run() for seed in range(6)]
    assert sum(each.done for each in histories) > 20 * len(histories)
    assert all(each.has_fenced for each in histories)


@pytest.mark.long
@pytest.mark.parametrize("hundred", range(1, 6))
def test_hundreds_of_histories_with_replacements(hundred: int) -> None:
    for seed in range(100 * hundred, 100 * hundred + 100):
        ReplacementHistory(seed).run()


class AnyRoster(Replica):
    """The sabotage: does not know that a server was replaced."""

    @property
    def _roster(self) -> int:
        return 0

    @_roster.setter
    def _roster(self, _: int) -> None:
        pass


def read_by_the_old_writer(make_replica: type[Replica] = Replica) -> str:
    """Return how a read of the old writer ends that reaches one old server and the replaced one, but not the new ones.

    Raises AssertionError if it is old.
    """
    outcome = ""

    async def main() -> None:
        nonlocal outcome
        random, awake, into = Random(1), asyncio.Event(), memoryview(bytearray(BLOCK_BYTES))
        awake.set()
        servers = [Server(number, blocks=1, random=random, make_replica=make_replica) for number in range(3)]
        old_links = [Link(server, random, writer=awake) for server in servers]
        async with _volume(old_links, roster=0) as old:
            await old.write(0, data=memoryview(content(1)), fua=False)
            for link in old_links:
                link.is_cut = True
            await asyncio.sleep(2.5)
            new_servers = [*servers[:2], Server(3, blocks=1, random=random, is_blank=True)]
            new_links = [Link(server, random, writer=awake) for server in new_servers]
            async with _volume(new_links, roster=1) as new:
                await new.wait_whole()
                new_links[0].is_cut = True  # the first old server, whose lease ends
                await new.write(0, data=memoryview(content(2)), fua=False)
                await asyncio.sleep(3.0)
                old_links[0].heal()
                old_links[2].heal()
                try:
                    await old.read(0, into=into)
                except DeviceError as error:
                    outcome = str(error)
                else:
                    assert value_of(into) == 2, "an old block was read"
                await new.read(0, into=into)
                assert value_of(into) == 2

    run(main)
    return outcome


def test_a_writer_that_knows_the_old_servers_only_is_out() -> None:
    assert "one of its servers was replaced" in read_by_the_old_writer()


def test_sabotage_without_the_roster_it_reads_what_is_old() -> None:
    with pytest.raises(AssertionError, match="an old block was read"):
        read_by_the_old_writer(AnyRoster)


def test_an_empty_server_is_no_part_of_a_majority_before_it_is_filled() -> None:
    async def main() -> None:
        random, awake, into = Random(1), asyncio.Event(), memoryview(bytearray(BLOCK_BYTES))
        awake.set()
        servers = [Server(number, blocks=1, random=random) for number in range(3)]
        async with _volume([Link(server, random, writer=awake) for server in servers], roster=0) as volume:
            servers[0].stop(loses_power=False)
            await volume.write(0, data=memoryview(content(1)), fua=False)
        servers[0].start()
        servers[2].stop(loses_power=True)  # lost for good; the first one has nothing of what was written
        servers[1].stop(loses_power=False)
        servers[2] = Server(3, blocks=1, random=random, is_blank=True)
        links = [Link(server, random, writer=awake) for server in servers]
        with pytest.raises(VolumeError, match="1 of 3 servers promise an epoch, and have kept what they had"):
            async with _volume(links, roster=1):
                pass
        servers[1].start()
        async with _volume(links, roster=1) as volume:
            await volume.wait_whole()
        servers[1].stop(loses_power=True)
        async with _volume(links, roster=1) as volume:
            await volume.read(0, into=into)
            assert value_of(into) == 1

    run(main)
