"""Reads that wait for a lost packet are asked of another replica, and few others are."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from netns.base.percentile import percentile
from nitro_emu.ebs.device import BLOCK_BYTES
from nitro_emu.ebs.hedge import LEAST_S, MOST_S, SHORT_BYTES, Hedge
from nitro_emu.ebs.replicas import ReplicatedVolume
from tests.nitro_emu.ebs.histories import content
from tests.nitro_emu.ebs.virtual_servers import VOLUME, Link, Memory, Server, run

USUAL_S = 0.003
LOST_S = 0.009
"""What a lost packet takes more: a probe, and its answer."""
LOSS = 0.02


def after(reads: list[float], *, length_bytes: int = BLOCK_BYTES) -> Hedge:
    """Return what reads that took so long teach."""
    hedge = Hedge()
    for took_s in reads:
        hedge.answered(length_bytes, took_s=took_s)
    return hedge


def test_reads_that_take_the_same_wait_for_twice_as_long() -> None:
    assert after([]).delay_s(BLOCK_BYTES) == MOST_S
    assert after([USUAL_S] * 3000).delay_s(BLOCK_BYTES) == pytest.approx(2 * USUAL_S, rel=0.1)
    assert after([0.0] * 3000).delay_s(BLOCK_BYTES) == 2 * LEAST_S
    assert after([1.0] * 3000).delay_s(BLOCK_BYTES) == MOST_S


def test_one_read_in_twenty_is_asked_twice_at_most() -> None:
    """Where one in ten is slow, those are waited for."""
    random = Random(5)
    reads = [LOST_S if random.random() < 0.1 else USUAL_S for _ in range(6000)]
    assert after(reads).delay_s(BLOCK_BYTES) > 0.9 * LOST_S


def test_long_reads_teach_nothing_and_wait_for_long() -> None:
    hedge = after([USUAL_S] * 3000, length_bytes=SHORT_BYTES + 1)
    assert hedge.delay_s(BLOCK_BYTES) == hedge.delay_s(SHORT_BYTES + 1) == MOST_S


class LossyLink(Link):
    """A link that loses packets, which are sent again."""

    lost = 0

    async def pass_network(self) -> bool:
        await asyncio.sleep(USUAL_S / 2)
        if self.random.random() < LOSS / 2:
            LossyLink.lost += 1
            await asyncio.sleep(LOST_S)
        return not self.is_cut


def test_no_read_of_a_volume_waits_for_one_lost_packet() -> None:
    """In virtual time: the others are as fast as before, and hardly more is sent."""
    took = list[float]()
    calls = 0

    class CountingLink(LossyLink):
        async def pass_network(self) -> bool:
            nonlocal calls
            calls += 1
            return await super().pass_network()

    async def main() -> None:
        random, awake, loop = Random(3), asyncio.Event(), asyncio.get_running_loop()
        awake.set()
        links = [CountingLink(Server(number, blocks=4, random=random), random, writer=awake) for number in range(3)]
        volume = ReplicatedVolume("v", volume=VOLUME, size_bytes=4 * BLOCK_BYTES, links=links, memory=Memory())
        async with volume:
            await volume.write(0, data=memoryview(content(1)), fua=False)
            await volume.wait_whole()
            for _ in range(5000):
                into, began_at = bytearray(BLOCK_BYTES), loop.time()
                await volume.read(0, into=memoryview(into))
                assert into == content(1)
                took.append(loop.time() - began_at)

    run(main)
    learnt = took[2000:]
    assert LossyLink.lost > 0.8 * LOSS * len(took)
    assert percentile(learnt, 50) == pytest.approx(USUAL_S)
    assert percentile(learnt, 99.9) < USUAL_S + LOST_S
    assert percentile(learnt, 99.9) == pytest.approx(3 * USUAL_S, rel=0.2)  # twice the median, and a read
    assert calls < 2 * len(took) * 1.1
