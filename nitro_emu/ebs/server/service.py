"""The server's process: volumes in a directory, writers over SRD.

    await serve(ServerConfig(directory, host, port), on_ready=print)      until it is cancelled

Commands of a writer are done as they come, many at a time: as many as there are slots for their data. One that has
begun is done to its end, also when its writer has gone: what is in the log is in the store before the next promise.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from devmem import Access, Region, Registration
from netns.base.files import locked_file
from nitro_emu.ebs.capsule import (
    MAX_IO_BYTES,
    CapsuleError,
    Command,
    Opcode,
    Outcome,
    Reply,
    command_untrusted,
)
from nitro_emu.ebs.device import BLOCK_BYTES
from nitro_emu.ebs.errors import VolumeError
from nitro_emu.ebs.server.disk import Disk, File, OsDisk
from nitro_emu.ebs.server.entries import Kind
from nitro_emu.ebs.server.ledger import Ledger, VolumeRow
from nitro_emu.ebs.server.replica import Replica, TransferError
from nitro_emu.ebs.server.store import Store
from srd import Endpoint, EndpointConfig, Keys, Peer, SrdError, Status
from srd.listening import listen_at
from srd.secure.config import SecurityConfig

SLOTS: Final = 32
"""Of 1 MiB, for the data of commands."""
SLOTS_OF_A_WRITER: Final = 16
"""So that one that does not take its data leaves some to the others."""
MAX_VOLUME_BYTES: Final = 64 << 40
"""io2 Block Express's."""

_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """Settings of a volume server."""

    directory: Path
    host: str | None
    port: int
    security: SecurityConfig = field(default_factory=Keys)
    """Who may reach it: whoever may, may write its volumes."""
    disk: Callable[[Path], Disk] = OsDisk
    """What makes the disk of a volume from its directory. Tests give one that fails."""


async def serve(config: ServerConfig, *, on_ready: Callable[[tuple[str, int]], None]) -> None:
    """Serve until it is cancelled; `on_ready` is called with the address. Raises VolumeError."""
    async with _opened(config) as server:
        on_ready(server.address)
        await server.run()


@asynccontextmanager
async def _opened(config: ServerConfig) -> AsyncIterator[VolumeServer]:
    with ExitStack() as stack:
        lock = _claim(config.directory)
        stack.callback(os.close, lock)
        ledger = Ledger(config.directory / "volumes.db")
        stack.callback(ledger.close)
        try:
            wanted = EndpointConfig(security=config.security)
            endpoint = await listen_at(config.host, lambda host: Endpoint.listen(host, config.port, config=wanted))
        except SrdError as error:
            raise VolumeError(str(error)) from error
        server = VolumeServer(config, endpoint=endpoint, ledger=ledger)
        try:
            yield server
        finally:
            await server.close()


def _claim(directory: Path) -> int:
    """Lock the directory, made if missing. Raises VolumeError."""
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        return locked_file(directory / "server.lock")
    except BlockingIOError:
        raise VolumeError(f"{directory}: another server has it; stop that one, or give another directory") from None
    except OSError as error:
        raise VolumeError(f"{directory}: cannot be used: {error.strerror}; give another directory") from error


class VolumeServer:
    """A server with its volumes open. `run` it; `close` it."""

    def __init__(self, config: ServerConfig, *, endpoint: Endpoint, ledger: Ledger) -> None:
        self._directory = config.directory
        self._disk = config.disk
        self._endpoint = endpoint
        self.address = endpoint.address
        self._ledger = ledger
        self._memory = _ServerMemory(endpoint)
        self._replicas: dict[int, Replica] = {}
        self._tasks = set[asyncio.Task[None]]()
        for row in ledger.volumes():
            try:
                self._replicas[row.id] = self._open(self._remembered(row))
            except VolumeError as error:
                _log.error("volume %x is not served: %s", row.id, error)

    def _remembered(self, row: VolumeRow) -> VolumeRow:
        """Return what is known of a volume; without its directory, that all is lost. Raises VolumeError."""
        if not row.epoch or self._directory_of(row).exists():
            return row
        self._ledger.mark(row.id, epoch=-1)
        _log.warning("%s is missing: the volume's writer fills it from other servers", self._directory_of(row))
        return replace(row, mark=-1)

    def _directory_of(self, row: VolumeRow) -> Path:
        return self._directory / f"{row.id:016x}"

    def _open(self, row: VolumeRow) -> Replica:
        """Open a volume. Raises VolumeError."""
        directory = self._directory_of(row)
        try:
            directory.mkdir(exist_ok=True, mode=0o700)
        except OSError as error:
            raise VolumeError(f"{directory}: {error.strerror}") from error
        store = Store(self._disk(directory), size_bytes=row.size_bytes)
        return Replica(row, store=store, ledger=self._ledger, sync=_sync, clock=asyncio.get_running_loop().time)

    async def run(self) -> None:
        """Serve all that connect."""
        async for peer in self._endpoint:
            self._start(self._serve_peer(peer))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve_peer(self, peer: Peer) -> None:
        slots = asyncio.Semaphore(SLOTS_OF_A_WRITER)
        try:
            async for message in peer:
                command = command_untrusted(message.data())
                await slots.acquire()
                slot = await self._memory.take()
                self._start(self._do(peer, command, slot, slots))
        except CapsuleError as error:
            _log.warning("%s: %s", peer, error)
            peer.fail(str(error))
        except SrdError as error:
            _log.info("%s", error)

    async def _do(self, peer: Peer, command: Command, slot: _Slot, slots: asyncio.Semaphore) -> None:
        try:
            reply = await self._reply(command, _SrdTransfer(peer, command, memory=self._memory, slot=slot))
            if reply is not None:
                await peer.send(replace(reply, number=command.number).encode())
        except (TransferError, SrdError) as error:
            _log.debug("%s", error)  # its writer does not wait for it any more
        finally:
            self._memory.give_back(slot)
            slots.release()

    async def _reply(self, command: Command, transfer: _SrdTransfer) -> Reply | None:
        if command.opcode is Opcode.CREATE:
            return self._create(command)
        replica = self._replicas.get(command.volume)
        if replica is None:
            return Reply(outcome=Outcome.UNKNOWN)
        try:
            return await replica.handle(command, transfer=transfer)
        except TransferError:
            raise
        except VolumeError as error:
            _log.error("volume %x: %s", command.volume, error)
            return Reply(outcome=Outcome.FAILED)

    def _create(self, command: Command) -> Reply:
        """Make a volume, or a replica without data of one; what is there already may be the last try's."""
        is_blank = command.kind is Kind.ABSENT
        if (known := self._replicas.get(command.volume)) is not None:
            if known.size_bytes == command.length and known.is_blank >= is_blank:
                return Reply(outcome=Outcome.OK)
            _log.error(
                "volume %x cannot be made: there is a replica of it, maybe an old one; to use this server for it "
                "again, stop it, remove %s, and start it", command.volume, self._directory / f"{command.volume:016x}",
            )  # fmt: skip
            return Reply(outcome=Outcome.REFUSED)
        if not 0 < command.length <= MAX_VOLUME_BYTES or command.length % BLOCK_BYTES or command.volume >> 63:
            return Reply(outcome=Outcome.REFUSED)
        try:
            row = VolumeRow(command.volume, command.length, 0, 0, -1 if is_blank else 0)
            replica = self._open(row)
            self._ledger.create(command.volume, size_bytes=command.length, mark=row.mark)
        except VolumeError as error:
            _log.error("volume %x cannot be made: %s", command.volume, error)
            return Reply(outcome=Outcome.FAILED)
        self._replicas[command.volume] = replica
        return Reply(outcome=Outcome.OK)

    async def close(self) -> None:
        """Finish what has begun, and close all."""
        await self._endpoint.close()
        while self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)
        self._memory.close()
        for replica in self._replicas.values():
            await replica.close()


async def _sync(files: Sequence[File]) -> None:
    """Synchronise files in another thread, one after the other."""
    loop = asyncio.get_running_loop()
    for file in files:
        await loop.run_in_executor(None, file.sync)


@dataclass(frozen=True, slots=True)
class _Slot:
    offset: int
    view: memoryview


class _ServerMemory:
    """Registered memory for the data of commands."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.region = Region(SLOTS * MAX_IO_BYTES)
        self.registration: Registration = endpoint.register(
            self.region, offset=0, length=SLOTS * MAX_IO_BYTES, access=Access.LOCAL_WRITE
        )
        self._all = [
            _Slot(at, self.region.view(at, length=MAX_IO_BYTES)) for at in range(0, SLOTS * MAX_IO_BYTES, MAX_IO_BYTES)
        ]
        self._free = list(self._all)
        self._count = asyncio.Semaphore(SLOTS)

    async def take(self) -> _Slot:
        await self._count.acquire()
        return self._free.pop()

    def give_back(self, slot: _Slot) -> None:
        self._free.append(slot)
        self._count.release()

    def close(self) -> None:
        for slot in self._all:
            slot.view.release()
        self.region.close()


class _SrdTransfer:
    """The data of one command; see `Transfer`."""

    def __init__(self, peer: Peer, command: Command, *, memory: _ServerMemory, slot: _Slot) -> None:
        self.memory = slot.view
        self._peer, self._command, self._offset = peer, command, slot.offset
        self._of_server = memory

    async def pull(self, length_bytes: int) -> None:
        """See Transfer."""
        await self._transfer(
            lambda: self._peer.post_read(
                self._of_server.registration,
                offset=self._offset,
                length=length_bytes,
                key=self._command.key,
                source_offset=self._command.memory_offset,
            )
        )

    async def push(self, length_bytes: int) -> None:
        """See Transfer."""
        await self._transfer(
            lambda: self._peer.post_write(
                self._of_server.region,
                offset=self._offset,
                length=length_bytes,
                key=self._command.key,
                target_offset=self._command.memory_offset,
                immediate=self._command.number,
            )
        )

    async def _transfer(self, post: Callable[[], asyncio.Future[Status]]) -> None:
        try:
            status = await post()
        except SrdError as error:
            raise TransferError(str(error)) from error
        if status is not Status.OK:
            raise TransferError(f"{self._peer}: {status.name}")
