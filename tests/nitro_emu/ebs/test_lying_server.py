"""A server of three that answers what no replica says: the volume goes on with the other two."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest

from nitro_emu.ebs.capsule import CapsuleCommand, CapsuleOpcode, CapsuleOutcome, CapsuleReply
from nitro_emu.ebs.device import BLOCK_BYTES
from nitro_emu.ebs.replicas import ReplicatedVolume
from nitro_emu.ebs.server.entries import MAX_EPOCH, BlockKind, Entries
from tests.nitro_emu.ebs.histories import content, value_of
from tests.nitro_emu.ebs.virtual_servers import VOLUME, Link, Memory, Server, Transfer, run

BLOCKS = 40
LIAR = 1
Answer = CapsuleReply | None
Lie = Callable[[CapsuleCommand, Answer, Transfer], Answer]


def says(opcode: CapsuleOpcode, **fields: Any) -> Lie:
    """Answer one kind of command with other fields."""

    def lie(command: CapsuleCommand, reply: Answer, _: Transfer) -> Answer:
        wrong = reply or CapsuleReply(outcome=CapsuleOutcome.OK)
        return replace(wrong, **fields) if command.opcode is opcode else reply

    return lie


def has_versions_of_the_future(command: CapsuleCommand, reply: Answer, transfer: Transfer) -> Answer:
    """Have all extents be compared, and all of their blocks at a version that is yet to come."""
    if command.opcode is CapsuleOpcode.DIGESTS and reply is None:
        transfer.memory[: transfer.pushed_bytes] = b"\xff" * transfer.pushed_bytes
    elif command.opcode in {CapsuleOpcode.ENTRIES, CapsuleOpcode.HELD} and reply is None:
        first, count = command.offset // BLOCK_BYTES, command.length // BLOCK_BYTES
        entries = Entries.alike(count, version=(1 << 64) - 1, kind=BlockKind.ABSENT)
        entries.crc[:] = np.arange(count)
        transfer.memory[: transfer.pushed_bytes] = entries.encode(first_block=first)
    return reply


class LyingServer(Server):
    lie: Lie
    is_lying = True

    async def handle(self, command: CapsuleCommand, transfer: Transfer) -> CapsuleReply | None:
        reply = await super().handle(command, transfer)
        return self.lie(command, reply, transfer) if self.is_lying else reply


class Stage:
    """A volume on three servers, whose second one lies."""

    def __init__(self, lie: Lie) -> None:
        random, awake = Random(1), asyncio.Event()
        awake.set()
        self.servers = [
            (LyingServer if number == LIAR else Server)(number, blocks=BLOCKS, random=random) for number in range(3)
        ]
        self.liar = self.servers[LIAR]
        assert isinstance(self.liar, LyingServer)
        self.liar.lie = lie
        links = [Link(server, random, writer=awake) for server in self.servers]
        self.volume = ReplicatedVolume(
            "v", volume=VOLUME, size_bytes=BLOCKS * BLOCK_BYTES, links=links, memory=Memory()
        )

    async def use(self, *, first_value: int) -> None:
        """Write all blocks, and read them as often as each server has its turn."""
        for block in range(BLOCKS):
            data = memoryview(content(first_value + block))
            await self.volume.write(block * BLOCK_BYTES, data=data, fua=False)
        for _ in range(4):
            into = memoryview(bytearray(BLOCKS * BLOCK_BYTES))
            await self.volume.read(0, into=into)
            found = [value_of(into[at : at + BLOCK_BYTES]) for at in range(0, len(into), BLOCK_BYTES)]
            assert found == list(range(first_value, first_value + BLOCKS))
            await self.volume.flush()


LIES = {
    "epoch": says(CapsuleOpcode.STATUS, epoch=(1 << 64) - 1),
    "last epoch": says(CapsuleOpcode.STATUS, epoch=MAX_EPOCH),
    "mark": says(CapsuleOpcode.PROMISE, mark=1 << 63),
    "errno of a lease": says(CapsuleOpcode.RENEW, outcome=CapsuleOutcome.FAILED, value=1 << 63),
    "errno of a write": says(CapsuleOpcode.WRITE, outcome=CapsuleOutcome.FAILED, value=1 << 63),
    "errno of a read": says(CapsuleOpcode.READ, outcome=CapsuleOutcome.FAILED, value=(1 << 64) - 1),
    "block beyond all": says(CapsuleOpcode.READ, outcome=CapsuleOutcome.ABSENT, value=(1 << 64) - 1),
    "block beyond the end": says(CapsuleOpcode.READ, outcome=CapsuleOutcome.ABSENT, value=BLOCKS),
    "versions": has_versions_of_the_future,
}


@pytest.mark.parametrize("name", LIES)
def test_a_server_that_lies_ends_no_volume(name: str, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        stage = Stage(LIES[name])
        async with stage.volume as volume:
            for first_value in (1, 1000, 2000):
                await stage.use(first_value=first_value)
                assert [each.is_member for at, each in enumerate(volume.status()) if at != LIAR] == [True, True]
                await asyncio.sleep(3)  # of virtual time: leases are renewed, and the server is asked again
            assert not any(member.missing for at, member in volume._view.members.items() if at != LIAR)

    run(main)
    assert "internal error" not in caplog.text
    assert "Traceback" not in caplog.text


def test_a_server_that_has_lied_is_let_in_when_it_does_not() -> None:
    async def main() -> None:
        stage = Stage(LIES["versions"])
        async with stage.volume as volume:
            await stage.use(first_value=1)
            assert not volume.status()[LIAR].is_member
            assert isinstance(stage.liar, LyingServer)
            stage.liar.is_lying = False
            await volume.wait_whole()
            await stage.use(first_value=1000)

    run(main)


def test_what_a_server_lies_of_blocks_that_nobody_asked_for_is_not_remembered() -> None:
    async def main() -> None:
        stage, asked = Stage(lambda _, reply, __: reply), 0

        def lie(command: CapsuleCommand, reply: Answer, _: Transfer) -> Answer:
            nonlocal asked
            if command.opcode is not CapsuleOpcode.READ:
                return reply
            asked += 1
            return CapsuleReply(outcome=CapsuleOutcome.ABSENT, value=asked << 12)

        assert isinstance(stage.liar, LyingServer)
        stage.liar.lie = lie
        async with stage.volume as volume:
            await stage.use(first_value=1)
            assert asked
            assert not any(member.missing for member in volume._view.members.values())

    run(main)


@pytest.mark.parametrize("block", [(1 << 64) - 1, BLOCKS])
def test_a_server_that_lies_to_a_repair_ends_no_volume(block: int, caplog: pytest.LogCaptureFixture) -> None:
    """The blocks are copied from another one."""

    def lie(command: CapsuleCommand, reply: Answer, _: Transfer) -> Answer:
        is_repair = command.opcode is CapsuleOpcode.READ and command.version
        return CapsuleReply(outcome=CapsuleOutcome.ABSENT, value=block) if is_repair else reply

    async def main() -> None:
        stage = Stage(lie)
        async with stage.volume as volume:
            for first_value in range(1, 1000, 100):  # whom it asks first is a matter of their turns
                stage.servers[2].stop(loses_power=False)
                await stage.use(first_value=first_value)
                stage.servers[2].start()
                await asyncio.sleep(3)  # of virtual time
                await volume.wait_whole(server=2)

    run(main)
    assert "internal error" not in caplog.text
    assert "is too slow" not in caplog.text
