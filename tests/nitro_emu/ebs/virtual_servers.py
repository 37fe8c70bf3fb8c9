"""Three servers and their writers in virtual time: the code of both ends, between them a network that is cut, disks
that fail, servers that are killed, lose power, or stop for a while.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine, Sequence
from random import Random
from typing import Any

from nitro_emu.ebs import link
from nitro_emu.ebs.capsule import (
    MAX_IO_BYTES,
    CapsuleCommand,
    CapsuleError,
    CapsuleOutcome,
    CapsuleReply,
    command_untrusted,
    reply_untrusted,
)
from nitro_emu.ebs.device import BLOCK_BYTES
from nitro_emu.ebs.server.disk import DiskFile
from nitro_emu.ebs.server.ledger import Ledger
from nitro_emu.ebs.server.replica import Replica
from nitro_emu.ebs.server.store import BlockStore
from tests.nitro_emu.ebs.virtual_disk import VirtualDisk

VOLUME = 7
CALL_S = 0.4
LOG_BYTES = 60_000
"""So little that logs take turns."""


class _Selector(selectors.SelectSelector):
    """Passes the time instead of waiting."""

    loop: VirtualLoop

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            raise RuntimeError("everything waits, and for nothing")
        self.loop.now += max(timeout, 0.0)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop in virtual time."""

    def __init__(self) -> None:
        selector = _Selector()
        super().__init__(selector)
        selector.loop = self
        self.now = 0.0

    def time(self) -> float:
        return self.now


class Buffer:
    key = 0

    def __init__(self, length_bytes: int) -> None:
        self.view = memoryview(bytearray(length_bytes))
        self.is_reachable = True

    def give_back(self) -> None:
        """Others' data lies there at once; whoever still reads it reads that."""
        self.is_reachable = False
        self.view[:] = b"\xee" * len(self.view)


class Memory:
    is_short = False

    async def take(self, length_bytes: int) -> Buffer:
        return Buffer(length_bytes)

    async def take_urgent(self) -> Buffer:
        return Buffer(link.URGENT_BYTES)


class Server:
    """A server of one volume, its disk, and what becomes of it."""

    def __init__(
        self,
        number: int,
        *,
        blocks: int,
        random: Random,
        is_blank: bool = False,
        make_replica: Callable[..., Replica] = Replica,
    ) -> None:
        self.name = f"server {number}"
        self.random = random
        self._size_bytes = blocks * BLOCK_BYTES
        self.disk = VirtualDisk()
        self.ledger = Ledger(":memory:")
        self.ledger.create(VOLUME, size_bytes=self._size_bytes, mark=-1 if is_blank else 0)
        self.replica: Replica | None = None
        self._tasks = set[asyncio.Task[Any]]()
        self.is_awake = asyncio.Event()
        self.is_awake.set()
        self._make_replica = make_replica
        self.start()

    def start(self) -> None:
        (row,) = self.ledger.volumes()
        clock = asyncio.get_running_loop().time
        store = BlockStore(self.disk, size_bytes=self._size_bytes, log_bytes=LOG_BYTES)
        self.replica = self._make_replica(row, store=store, ledger=self.ledger, sync=self._sync, clock=clock)

    async def _sync(self, files: Sequence[DiskFile]) -> None:
        await asyncio.sleep(self.random.uniform(0.0001, 0.002))
        await self.is_awake.wait()
        for file in files:
            file.sync()

    async def handle(self, command: CapsuleCommand, transfer: Transfer) -> CapsuleReply | None:
        """Do a command in a task of the server's. Raises LinkError if the server ends."""
        replica = self.replica
        if replica is None:
            raise link.LinkError("it is down")
        await self.is_awake.wait()
        task = asyncio.ensure_future(replica.handle(command, transfer=transfer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        await asyncio.wait([task])
        if task.cancelled():
            raise link.LinkError("it has ended")
        reply = task.result()
        await self.is_awake.wait()
        return reply

    def stop(self, *, loses_power: bool) -> None:
        """End it at once."""
        if self.replica is None:
            return
        self.replica = None
        for task in self._tasks:
            task.cancel()
        self.disk = self.disk.after_power_loss(self.random) if loses_power else self.disk.after_kill()


class Transfer:
    def __init__(self, data: bytes) -> None:
        self.data = memoryview(data)
        self.memory = memoryview(bytearray(MAX_IO_BYTES))
        self.pushed_bytes = 0

    def push(self, length_bytes: int) -> None:
        self.pushed_bytes = length_bytes

    def land(self, buffer: Buffer | None) -> bool:
        """Write to the writer's memory what was pushed; return whether that is reachable."""
        if buffer is None or not buffer.is_reachable:
            return False
        buffer.view[: self.pushed_bytes] = self.memory[: self.pushed_bytes]
        return True


class Link:
    """The way from one writer to one server."""

    def __init__(self, server: Server, random: Random, *, writer: asyncio.Event) -> None:
        """`writer`: set unless the writer has stopped; then it neither sends nor receives, and its timers stand."""
        self.name = server.name
        self.server = server
        self.random = random
        self.is_cut = False
        self.call_s = CALL_S
        self._writer = writer

    def heal(self) -> None:
        self.is_cut = False

    async def pass_network(self) -> bool:
        """Take the time of it; return whether it has arrived."""
        await asyncio.sleep(self.random.expovariate(1 / 0.0003))
        return not self.is_cut

    def call(self, command: CapsuleCommand, *, buffer: link.Buffer | None = None) -> asyncio.Future[CapsuleReply]:
        command.encode()  # what cannot be encoded raises at once, as in SrdLink
        return asyncio.ensure_future(self._call(command, buffer))

    async def _call(self, command: CapsuleCommand, buffer: link.Buffer | None) -> CapsuleReply:
        assert buffer is None or isinstance(buffer, Buffer)
        await self._writer.wait()
        done: asyncio.Future[CapsuleReply] = asyncio.get_running_loop().create_future()
        carrying = asyncio.ensure_future(self._carry(command, buffer, done))
        carrying.add_done_callback(lambda _: None)
        await asyncio.wait([done], timeout=self.call_s)
        await self._writer.wait()
        if not done.done():
            done.cancel()
            raise link.LinkError(f"{self.name}: no answer")
        return done.result()

    async def _carry(self, command: CapsuleCommand, buffer: Buffer | None, done: asyncio.Future[CapsuleReply]) -> None:
        data = bytes(buffer.view[: command.data_bytes]) if buffer is not None else b""
        message = command.encode() + data  # it may arrive after the call was given up
        if not await self.pass_network():
            return
        transfer = Transfer(data)
        try:
            reply = await self.server.handle(command_untrusted(message), transfer)
            if not await self.pass_network() or (reply is None and not transfer.land(buffer)):
                return
            answer = CapsuleReply(outcome=CapsuleOutcome.OK) if reply is None else reply_untrusted(reply.encode())
        except (link.LinkError, CapsuleError) as error:  # of the latter the connection ends
            if not done.done():
                done.set_exception(link.LinkError(f"{self.name}: {error}"))
                done.exception()
            return
        if not done.done():
            done.set_result(answer)

    async def close(self) -> None:
        pass


def run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run to the end in virtual time; no task is left."""
    loop = VirtualLoop()
    try:
        asyncio.set_event_loop(loop)
        loop.run_until_complete(main())
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(_settled())
    finally:
        asyncio.set_event_loop(None)
        loop.close()


async def _settled() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    await asyncio.gather(*others, return_exceptions=True)
