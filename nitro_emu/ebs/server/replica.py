"""One volume on one server: what a command may do there, and does.

Theory of operation. A writer that attaches takes an epoch, and each replica promises it: from then on it refuses what
is of an earlier one. A write that was on its way to the log is finished before the promise is given, so that what the
writer then reads of this replica stays true. A replica that has adopted what the writer has decided is marked with the
epoch, and only then reads and writes. (The promise and the mark are the ballot and the last normal view of Oki and
Liskov, "Viewstamped Replication", 1988.)

A promise goes with a lease (Gray and Cheriton, 1989): for LEASE_S from its last command, no other writer gets a
promise. A server that was started anew does not know when that was, and waits as long.

Writes that arrive together are synchronised together.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol

from nitro_emu.ebs.capsule import BLANK, CapsuleCommand, CapsuleOpcode, CapsuleOutcome, CapsuleReply
from nitro_emu.ebs.device import BLOCK_BYTES
from nitro_emu.ebs.server.disk import DiskFile
from nitro_emu.ebs.server.entries import MAX_EPOCH, BlockKind
from nitro_emu.ebs.server.ledger import Ledger, VolumeRow
from nitro_emu.ebs.server.store import AbsentError, BlockStore, StoreError
from nitro_emu.ebs.server.wal import MAX_BLOCKS, WalRecord, checksums

LEASE_S: Final = 2.0
"""How long another writer waits after the last one has fallen silent: more than the longest stop of a busy host."""

Sync = Callable[[Sequence[DiskFile]], Awaitable[None]]
"""Synchronises files, while other things go on. Raises OSError."""


class Transfer(Protocol):
    """The data of one command: what came with it, and the way to the writer's memory."""

    data: memoryview
    """Of a WRITE."""
    memory: memoryview
    """Of MAX_IO_BYTES, for what commands of READS read."""

    def push(self, length_bytes: int) -> None:
        """Write the memory to the writer's, which says that the command has succeeded. Once, as the last step."""


class Replica:
    """One volume on one server. Raises VolumeError."""

    def __init__(
        self,
        row: VolumeRow,
        *,
        store: BlockStore,
        ledger: Ledger,
        sync: Sync,
        clock: Callable[[], float],
    ) -> None:
        self.size_bytes = row.size_bytes
        self.store = store
        self._volume, self._epoch, self._owner, self._mark = row.id, row.epoch, row.owner, row.mark
        self._roster = row.roster
        self._has_lost = False  # blocks, since its mark: its writer is to look what it has
        self._ledger = ledger
        self._sync = sync
        self._clock = clock
        self._lease_until = clock() + LEASE_S if row.owner else 0.0
        self._log = _GroupCommit(store, sync=sync)

    @property
    def is_blank(self) -> bool:
        """Whether it has no say: it has lost all that it had, or has not been given anything yet."""
        return self._mark < 0

    # -- commands -----------------------------------------------------------------------------------------------------

    async def handle(self, command: CapsuleCommand, *, transfer: Transfer) -> CapsuleReply | None:
        """Do a command; return the reply, None: its data says it."""
        try:
            if self.store.failure is not None:
                raise self.store.failure
            if command.opcode is CapsuleOpcode.STATUS:
                return self._reply(CapsuleOutcome.OK, value=self.size_bytes)
            if command.opcode is CapsuleOpcode.PROMISE:
                return await self._promise(command)
            if command.opcode is CapsuleOpcode.SCRUB:
                return await self._scrub(command)
            if (refusal := self._refusal(command)) is not None:
                return refusal
            self._lease_until = self._clock() + LEASE_S
            return await self._of_the_writer(command, transfer)
        except AbsentError as absent:
            return self._reply(CapsuleOutcome.ABSENT, value=absent.block)
        except StoreError as failure:
            return self._reply(CapsuleOutcome.FAILED, value=failure.errno_value)

    def _refusal(self, command: CapsuleCommand) -> CapsuleReply | None:
        """Return why the writer may not do this, or not here."""
        needs_mark = command.opcode in {
            CapsuleOpcode.READ,
            CapsuleOpcode.WRITE,
            CapsuleOpcode.ZERO,
            CapsuleOpcode.RENEW,
        }
        if not self._is_of_writer(command) or (needs_mark and (self._mark != self._epoch or self._has_lost)):
            return self._reply(CapsuleOutcome.FENCED)
        if command.opcode in {CapsuleOpcode.MARK, CapsuleOpcode.RENEW, CapsuleOpcode.RELEASE}:
            return None
        if command.opcode is CapsuleOpcode.DIGESTS:
            is_beyond = command.offset + command.length > self.store.extents
        else:
            is_beyond = command.offset + command.length > self.size_bytes
        return self._reply(CapsuleOutcome.REFUSED) if is_beyond else None

    def _is_of_writer(self, command: CapsuleCommand) -> bool:
        return command.epoch == self._epoch and command.owner == self._owner

    async def _of_the_writer(self, command: CapsuleCommand, transfer: Transfer) -> CapsuleReply | None:
        match command.opcode:
            case CapsuleOpcode.READ:
                return await self._read(command, transfer)
            case CapsuleOpcode.WRITE:
                return await self._put(command, kind=BlockKind.DATA, data=transfer.data)
            case CapsuleOpcode.ZERO:
                return await self._put(command, kind=command.kind, data=memoryview(b""))
            case CapsuleOpcode.ADOPT:
                return await self._adopt(command)
            case CapsuleOpcode.DIGESTS:
                digests = map(self.store.digest, range(command.offset, command.offset + command.length))
                _push(b"".join(digests), transfer)
                return None
            case CapsuleOpcode.ENTRIES | CapsuleOpcode.HELD:
                first = command.offset // BLOCK_BYTES
                look = self.store.entries if command.opcode is CapsuleOpcode.ENTRIES else self.store.held
                entries = look(first, count=command.length // BLOCK_BYTES)
                _push(entries.encode(first_block=first), transfer)
                return None
            case CapsuleOpcode.MARK:
                self._ledger.mark(self._volume, epoch=command.epoch)
                self._mark, self._has_lost = command.epoch, False
            case CapsuleOpcode.RELEASE:
                self._lease_until = 0.0
            case CapsuleOpcode.RENEW:
                pass
            case _:
                return self._reply(CapsuleOutcome.REFUSED)
        return self._reply(CapsuleOutcome.OK)

    async def _promise(self, command: CapsuleCommand) -> CapsuleReply:
        left_s = self._lease_until - self._clock()
        if left_s > 0 and command.owner != self._owner:
            return self._reply(CapsuleOutcome.BUSY, value=int(left_s * 1e6) + 1)
        if command.length > MAX_EPOCH:
            return self._reply(CapsuleOutcome.REFUSED)
        if command.length < self._roster:
            return self._reply(CapsuleOutcome.CHANGED)
        if command.epoch <= self._epoch:
            return self._reply(CapsuleOutcome.FENCED)
        self._epoch, self._owner, self._roster = command.epoch, command.owner, command.length
        self._lease_until = self._clock() + LEASE_S
        await self._log.drained()
        if not self._is_of_writer(command):  # another one came meanwhile
            return self._reply(CapsuleOutcome.FENCED)
        self._ledger.promise(self._volume, epoch=command.epoch, owner=command.owner, roster=command.length)
        return self._reply(CapsuleOutcome.OK)

    async def _read(self, command: CapsuleCommand, transfer: Transfer) -> CapsuleReply | None:
        memory = transfer.memory[: command.length]
        try:
            is_there = self.store.read(command.offset // BLOCK_BYTES, into=memory, version=command.version)
        except AbsentError as absent:
            if absent.is_corrupt:
                await self._log.write(self.store.lost(absent.block), memoryview(b""))
            raise
        if not is_there:
            return self._reply(CapsuleOutcome.CHANGED)
        transfer.push(command.length)
        return None

    async def _adopt(self, command: CapsuleCommand) -> CapsuleReply:
        """Take blocks as they were decided; one that has lost all that it had says so of each block first."""
        first, count = command.offset // BLOCK_BYTES, command.length // BLOCK_BYTES
        if command.kind is not BlockKind.DATA:
            if self._mark < 0 and command.kind is BlockKind.ABSENT:
                await self._log.write(WalRecord(BlockKind.ABSENT, 0, first, count), memoryview(b""))
                if not self._is_of_writer(command):  # not any more: the log took time
                    return self._reply(CapsuleOutcome.FENCED)
            return await self._put(command, kind=command.kind, data=memoryview(b""))
        if count > MAX_BLOCKS:
            return self._reply(CapsuleOutcome.REFUSED)
        try:
            data = self.store.held_data(first, count=count, version=command.version)
        except AbsentError as absent:
            if absent.is_corrupt:
                await self._log.write(self.store.lost(absent.block), memoryview(b""))
            raise
        return await self._put(command, kind=BlockKind.DATA, data=memoryview(data))

    async def _put(self, command: CapsuleCommand, *, kind: BlockKind, data: memoryview) -> CapsuleReply:
        record = WalRecord(
            kind,
            command.version,
            command.offset // BLOCK_BYTES,
            command.length // BLOCK_BYTES,
            forces_before=command.epoch if command.opcode is CapsuleOpcode.ADOPT else 0,
            crcs=checksums(data),
        )
        await self._log.write(record, data)
        return self._reply(CapsuleOutcome.OK)

    async def _scrub(self, command: CapsuleCommand) -> CapsuleReply:
        """Read blocks for their checksums; a corrupt one becomes absent, and the writer has to look again."""
        if command.offset + command.length > self.size_bytes:
            return self._reply(CapsuleOutcome.REFUSED)
        corrupt, memory = 0, memoryview(bytearray(BLOCK_BYTES))
        for block in range(command.offset // BLOCK_BYTES, (command.offset + command.length) // BLOCK_BYTES):
            try:
                self.store.read(block, into=memory)
            except AbsentError as absent:
                if absent.is_corrupt:
                    corrupt += 1
                    await self._log.write(self.store.lost(block), memoryview(b""))
                    self._has_lost = True
        return self._reply(CapsuleOutcome.OK, value=corrupt)

    def _reply(self, outcome: CapsuleOutcome, *, value: int = 0) -> CapsuleReply:
        mark = BLANK if self._mark < 0 else self._mark
        return CapsuleReply(outcome=outcome, epoch=self._epoch, owner=self._owner, mark=mark, value=value)

    async def close(self) -> None:
        """Finish the writes that are in the log, and close the files."""
        await self._log.finished()
        self.store.close()


def _push(content: bytes, transfer: Transfer) -> None:
    transfer.memory[: len(content)] = content
    transfer.push(len(content))


class _GroupCommit:
    """Writes of one store: one synchronises for all that have come by then."""

    def __init__(self, store: BlockStore, *, sync: Sync) -> None:
        self._store = store
        self._sync = sync
        self._open = 0
        self._is_idle = asyncio.Event()
        self._is_idle.set()
        self._waiting: list[asyncio.Future[None]] = []
        self._task: asyncio.Task[None] | None = None
        self._checkpoint: asyncio.Task[None] | None = None

    async def write(self, record: WalRecord, data: memoryview) -> None:
        """Have a record on the disk, and applied. Raises StoreError. If cancelled, it may be in the log only."""
        self._open += 1
        self._is_idle.clear()
        try:
            if record.kind is BlockKind.ABSENT:
                self._store.keep(record)
            appended = self._store.append(record, data)
            await self._synced()
            self._store.apply(appended, record, data)
        finally:
            self._open -= 1
            if not self._open:
                self._is_idle.set()

    async def drained(self) -> None:
        """Wait until no write is on its way."""
        await self._is_idle.wait()

    async def finished(self) -> None:
        """Wait until nothing is on its way to the disk."""
        await self.drained()
        if self._checkpoint is not None:
            await self._checkpoint

    async def _synced(self) -> None:
        future = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        if self._task is None or self._task.done():
            self._task = asyncio.ensure_future(self._run())
        await future

    async def _run(self) -> None:
        while self._waiting:
            waiting, self._waiting = self._waiting, []
            files, number = self._store.to_sync()
            failure: StoreError | None = None
            try:
                await self._sync(files)
                self._store.synced(number)
            except StoreError as error:
                failure = error
            except OSError as error:
                failure = self._store.sync_failed(error)
            for future in waiting:
                if future.done():
                    continue
                if failure is None:
                    future.set_result(None)
                else:
                    future.set_exception(StoreError(OSError(failure.errno_value, str(failure))))
            if self._store.wants_checkpoint and (self._checkpoint is None or self._checkpoint.done()):
                self._checkpoint = asyncio.ensure_future(self._do_checkpoint())

    async def _do_checkpoint(self) -> None:
        try:
            await self._sync(self._store.to_checkpoint())
            self._store.checkpointed()
        except OSError as error:
            self._store.sync_failed(error)
        except StoreError:
            pass  # the next command says it
