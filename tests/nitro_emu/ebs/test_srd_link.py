"""The way of a command over SRD, both ends of it: its data, its number, what ends it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace

import pytest

from netns.base.tasks import Tasks
from nitro_emu.ebs.capsule import COMMAND_BYTES, CapsuleCommand, CapsuleOpcode, CapsuleOutcome, CapsuleReply
from nitro_emu.ebs.device import BLOCK_BYTES
from nitro_emu.ebs.link import LinkError
from nitro_emu.ebs.link_memory import LinkMemory
from nitro_emu.ebs.server.connection import SLOTS, SLOTS_OF_A_WRITER, ServerMemory, WriterConnection
from nitro_emu.ebs.server.entries import BlockKind
from nitro_emu.ebs.server.replica import Transfer
from nitro_emu.ebs.srd_link import SrdLink
from srd import Endpoint, Peer, RequestError
from tests.patience import PATIENCE_S, until
from tests.srd.loopback import PLAIN, content, endpoints

Replier = Callable[[CapsuleCommand, Transfer], Awaitable[CapsuleReply | None]]
READ = CapsuleCommand(opcode=CapsuleOpcode.READ, volume=1, length=BLOCK_BYTES)


@dataclass
class Two:
    """Both ends."""

    writer: Endpoint
    server: Endpoint
    memory: LinkMemory
    server_memory: ServerMemory
    peers: list[Peer] = field(default_factory=list)
    """Of the server, in the order in which they came."""
    connections: list[WriterConnection] = field(default_factory=list)
    """Likewise."""

    def link(self) -> SrdLink:
        return SrdLink(self.writer, *self.server.address)

    async def all_slots(self) -> None:
        """Return once no slot of the server is in use."""
        async with asyncio.timeout(PATIENCE_S):
            slots = [await self.server_memory.take() for _ in range(SLOTS)]
        for slot in slots:
            self.server_memory.give_back(slot)


@asynccontextmanager
async def served(reply: Replier) -> AsyncIterator[Two]:
    """Have a server that does commands by `reply`."""
    tasks = Tasks()
    async with endpoints(PLAIN) as (writer, server):
        two = Two(writer, server, LinkMemory(writer), ServerMemory())

        async def accept() -> None:
            async for peer in server:
                two.peers.append(peer)
                two.connections.append(WriterConnection(peer, memory=two.server_memory, tasks=tasks, reply=reply))

        accepting = asyncio.ensure_future(accept())
        yield two
        accepting.cancel()
        await writer.close()
        await server.close()
        await tasks.ended()
        two.memory.close()
        two.server_memory.close()


@pytest.mark.parametrize("length", [BLOCK_BYTES, 64 << 10, 1 << 20])
async def test_the_data_of_a_write_comes_with_its_command(length: int) -> None:
    """The same memory is sent over two links at the same time."""
    data, found = content(length, seed=length), list[tuple[CapsuleCommand, bytes]]()

    async def reply(command: CapsuleCommand, transfer: Transfer) -> CapsuleReply:
        found.append((command, bytes(transfer.data)))
        return CapsuleReply(outcome=CapsuleOutcome.OK, value=len(found))

    async with served(reply) as two:
        command = CapsuleCommand(
            opcode=CapsuleOpcode.WRITE, volume=1, version=5, kind=BlockKind.DATA, offset=BLOCK_BYTES, length=length
        )
        buffer = await two.memory.take(length)
        buffer.view[:length] = data
        async with asyncio.timeout(PATIENCE_S):
            replies = await asyncio.gather(*(two.link().call(command, buffer=buffer) for _ in range(2)))
        buffer.give_back()
        assert sorted(each.value for each in replies) == [1, 2]
        assert found == [(command, data)] * 2


async def test_so_many_commands_of_a_writer_are_done_at_a_time_in_their_order() -> None:
    """Each gets its own answer, and no slot stays in use."""
    begun, may_end = list[int](), asyncio.Event()

    async def reply(command: CapsuleCommand, transfer: Transfer) -> CapsuleReply | None:
        begun.append(command.offset)
        await may_end.wait()
        if command.offset % 3 == 0:
            return CapsuleReply(outcome=CapsuleOutcome.ABSENT, value=command.offset)
        transfer.memory[:8] = command.offset.to_bytes(8)
        transfer.push(command.length)
        return None

    async with served(reply) as two:
        link, offsets = two.link(), [number * BLOCK_BYTES for number in range(3 * SLOTS_OF_A_WRITER)]
        buffers = [await two.memory.take(BLOCK_BYTES) for _ in offsets]
        calls = [
            link.call(
                CapsuleCommand(opcode=CapsuleOpcode.READ, volume=1, offset=offset, length=BLOCK_BYTES), buffer=buffer
            )
            for offset, buffer in zip(offsets, buffers, strict=True)
        ]
        await until(lambda: len(begun) >= SLOTS_OF_A_WRITER)
        assert begun == offsets[:SLOTS_OF_A_WRITER]
        may_end.set()
        async with asyncio.timeout(PATIENCE_S):
            replies = await asyncio.gather(*calls)
        assert begun == offsets
        for offset, buffer, answer in zip(offsets, buffers, replies, strict=True):
            if offset % 3 == 0:
                assert (answer.outcome, answer.value) == (CapsuleOutcome.ABSENT, offset)
            else:
                assert (answer.outcome, bytes(buffer.view[:8])) == (CapsuleOutcome.OK, offset.to_bytes(8))
        await two.all_slots()


@pytest.mark.parametrize(
    ("message", "immediate", "reason"),
    [
        (READ.encode(), None, "a command without a number"),
        (READ.encode() + b"more", 1, f"READ of {BLOCK_BYTES} with 4 bytes of data"),
        (b"short", 1, f"a command of 5 bytes; it has {COMMAND_BYTES}"),
    ],
    ids=["no number", "data", "short"],
)
async def test_who_sends_no_command_is_ended_and_nobody_else(
    message: bytes, immediate: int | None, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def reply(_: CapsuleCommand, __: Transfer) -> CapsuleReply:
        return CapsuleReply(outcome=CapsuleOutcome.OK)

    async with served(reply) as two:
        link = two.link()
        async with asyncio.timeout(PATIENCE_S):
            assert (await link.call(READ)).outcome is CapsuleOutcome.OK
            wrong = await two.writer.connect(*two.server.address)
            with suppress(RequestError):  # it may have ended before the message was acknowledged
                await wrong.send(message, immediate=immediate)
            await wrong.wait_ended()
            assert reason in caplog.text
            assert (await link.call(READ)).outcome is CapsuleOutcome.OK


async def test_what_was_asked_of_a_peer_that_has_ended_fails_and_the_next_call_connects_again() -> None:
    begun, may_end = list[CapsuleCommand](), asyncio.Event()

    async def reply(command: CapsuleCommand, _: Transfer) -> CapsuleReply:
        begun.append(command)
        await may_end.wait()
        return CapsuleReply(outcome=CapsuleOutcome.OK)

    async with served(reply) as two:
        link = two.link()
        call = link.call(READ)
        await until(lambda: begun)
        two.peers[0].abort()
        async with asyncio.timeout(PATIENCE_S):
            with pytest.raises(LinkError, match="has ended"):
                await call
            may_end.set()
            assert (await link.call(READ)).outcome is CapsuleOutcome.OK
        assert len(two.peers) == 2
        await two.all_slots()


async def test_a_call_that_was_cancelled_is_not_sent_any_more() -> None:
    """Its memory may then be used for something else: what has arrived of it is no command."""
    begun = list[tuple[int, bool]]()

    async def reply(command: CapsuleCommand, transfer: Transfer) -> CapsuleReply:
        begun.append((command.version, bytes(transfer.data) == bytes([command.version]) * command.length))
        return CapsuleReply(outcome=CapsuleOutcome.OK)

    async with served(reply) as two:
        link, length = two.link(), 1 << 20
        buffer = await two.memory.take(length)
        async with asyncio.timeout(PATIENCE_S):
            await link.call(CapsuleCommand(opcode=CapsuleOpcode.STATUS, volume=1))  # it is connected
            for version in range(1, 9):
                command = CapsuleCommand(
                    opcode=CapsuleOpcode.WRITE, volume=1, version=version, kind=BlockKind.DATA, length=length
                )
                buffer.view[:length] = bytes([version]) * length
                call = link.call(command, buffer=buffer)
                if version % 2 == 0:
                    assert (await call).outcome is CapsuleOutcome.OK
                    continue
                for _ in range(version):  # some of it is sent
                    await asyncio.sleep(0)
                call.cancel()
                await asyncio.wait([call])
        assert {2, 4, 6, 8} <= {version for version, _ in begun}
        assert all(is_whole for _, is_whole in begun)


async def test_what_is_read_for_a_call_that_was_cancelled_lands_nowhere() -> None:
    """Its memory has another key by then, and may belong to another call."""
    begun, may_end = list[int](), asyncio.Event()

    async def reply(command: CapsuleCommand, transfer: Transfer) -> CapsuleReply | None:
        begun.append(command.offset)
        if command.offset:
            await may_end.wait()
        transfer.memory[: command.length] = b"\xee" * command.length
        transfer.push(command.length)
        return None

    async with served(reply) as two:
        link, buffer = two.link(), await two.memory.take(BLOCK_BYTES)
        call = link.call(replace(READ, offset=BLOCK_BYTES), buffer=buffer)
        await until(lambda: begun)
        call.cancel()
        await asyncio.wait([call])
        buffer.give_back()
        again = await two.memory.take(BLOCK_BYTES)
        assert again is buffer
        again.view[:BLOCK_BYTES] = bytes(BLOCK_BYTES)
        may_end.set()
        await two.all_slots()  # the late answer has ended
        assert bytes(again.view[:BLOCK_BYTES]) == bytes(BLOCK_BYTES)
        async with asyncio.timeout(PATIENCE_S):
            assert (await link.call(READ, buffer=again)).outcome is CapsuleOutcome.OK
        assert bytes(again.view[:BLOCK_BYTES]) == b"\xee" * BLOCK_BYTES


async def test_a_server_that_has_answered_reaches_no_later_request() -> None:
    """It may lie, and write once more: what others have sent, and what is to be sent to others, lies there by then."""
    keys = list[int]()

    async def reply(command: CapsuleCommand, transfer: Transfer) -> CapsuleReply | None:
        keys.append(command.key)
        transfer.memory[: command.length] = b"\xee" * command.length
        transfer.push(command.length)
        return None

    async with served(reply) as two:
        link, buffer = two.link(), await two.memory.take(BLOCK_BYTES)
        async with asyncio.timeout(PATIENCE_S):
            assert (await link.call(READ, buffer=buffer)).outcome is CapsuleOutcome.OK
        buffer.give_back()
        again = await two.memory.take(BLOCK_BYTES)
        assert again is buffer
        again.view[:BLOCK_BYTES] = bytes(BLOCK_BYTES)
        slot = await two.server_memory.take()
        slot.view[:BLOCK_BYTES] = b"\xdd" * BLOCK_BYTES
        two.connections[0]._write(slot, BLOCK_BYTES, key=keys[0], number=99)
        await two.all_slots()  # it was refused
        assert bytes(again.view[:BLOCK_BYTES]) == bytes(BLOCK_BYTES)
        async with asyncio.timeout(PATIENCE_S):
            assert (await link.call(READ, buffer=again)).outcome is CapsuleOutcome.OK
        assert bytes(again.view[:BLOCK_BYTES]) == b"\xee" * BLOCK_BYTES
