"""A read does not wait for a server that has died, whenever it dies: also while a view is formed, and paths fail."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from nitro_emu.ebs.device import BLOCK_BYTES
from nitro_emu.ebs.errors import DeviceError
from nitro_emu.ebs.replicas import ReplicatedVolume
from nitro_emu.ebs.srd_link import CALL_S
from tests.nitro_emu.ebs.histories import content
from tests.nitro_emu.ebs.virtual_servers import VOLUME, Link, Memory, Server, run

BLOCKS = 8
LONGEST_S = 0.5
"""Two views, of which the first one was not formed."""
SLOW_S = 0.06
"""What a packet takes more that was on a path which has died."""


class SlowLink(Link):
    """A link as long as SRD's, some of whose packets were on a spine that has died."""

    is_slow = False

    def __init__(self, server: Server, random: Random, *, writer: asyncio.Event) -> None:
        super().__init__(server, random, writer=writer)
        self.call_s = CALL_S

    async def pass_network(self) -> bool:
        if self.is_slow and self.random.random() < 0.25:
            await asyncio.sleep(SLOW_S)
        return await super().pass_network()


async def _use(volume: ReplicatedVolume, random: Random, longest: dict[str, float]) -> None:
    loop, into = asyncio.get_running_loop(), memoryview(bytearray(BLOCK_BYTES))
    while True:
        kind, offset, began_at = random.choice(("read", "write")), random.randrange(BLOCKS) * BLOCK_BYTES, loop.time()
        if kind == "read":
            await volume.read(offset, into=into)
        else:
            await volume.write(offset, data=memoryview(content(1)), fua=False)
        longest[kind] = max(longest[kind], loop.time() - began_at)
        await asyncio.sleep(random.expovariate(1 / 0.002))


def longest_request(seed: int) -> dict[str, float]:
    """Return how long requests took at most while a server came back and, about then, one fell silent."""
    longest = {"read": 0.0, "write": 0.0}

    async def main() -> None:
        random, awake = Random(seed), asyncio.Event()
        awake.set()
        servers = [Server(number, blocks=BLOCKS, random=random) for number in range(3)]
        links = [SlowLink(server, random, writer=awake) for server in servers]
        volume = ReplicatedVolume("v", volume=VOLUME, size_bytes=BLOCKS * BLOCK_BYTES, links=links, memory=Memory())
        async with volume:
            users = [asyncio.ensure_future(_use(volume, random, longest)) for _ in range(3)]
            first, second = random.randrange(3), random.randrange(3)
            await asyncio.sleep(0.1)  # of virtual time, as all of these
            links[first].is_cut = True
            await asyncio.sleep(3)
            links[first].heal()
            await volume.wait_whole()
            links[first].is_cut = True  # and again, so that a view is about to be formed when one dies
            await asyncio.sleep(3)
            links[first].heal()
            await asyncio.sleep(random.uniform(0.0, 0.5))
            links[second].is_cut = True
            for link in links:
                link.is_slow = True
            await asyncio.sleep(0.3)
            for link in links:
                link.is_slow = False
            await asyncio.sleep(3)
            for user in users:
                user.cancel()
            for result in await asyncio.gather(*users, return_exceptions=True):
                assert not isinstance(result, DeviceError)

    run(main)
    return longest


@pytest.mark.parametrize("seed", range(12))
def test_no_request_waits_for_a_server_that_has_died(seed: int) -> None:
    assert max(longest_request(seed).values()) < LONGEST_S < CALL_S / 3
