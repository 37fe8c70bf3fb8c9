"""The server's process: volumes in a directory, writers over SRD.

    await serve(ServerConfig(directory, host, port), on_ready=print)      until it is cancelled

A command that has begun is done to its end, also when its writer has gone: what is in the log is in the store before
the next promise.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from netns.base.files import locked_file
from netns.base.tasks import Tasks
from nitro_emu.ebs.capsule import CapsuleCommand, CapsuleOpcode, CapsuleOutcome, CapsuleReply
from nitro_emu.ebs.device import BLOCK_BYTES
from nitro_emu.ebs.errors import VolumeError
from nitro_emu.ebs.server.connection import ServerMemory, WriterConnection
from nitro_emu.ebs.server.disk import Disk, OsDisk
from nitro_emu.ebs.server.disk_sync import DiskSync
from nitro_emu.ebs.server.entries import BlockKind
from nitro_emu.ebs.server.ledger import Ledger, VolumeRow
from nitro_emu.ebs.server.replica import Replica, Transfer
from nitro_emu.ebs.server.store import BlockStore
from srd import Endpoint, EndpointConfig, Keys, SrdError
from srd.listening import listen_at
from srd.log_limit import RateLimit
from srd.secure.config import SecurityConfig

MAX_VOLUME_BYTES: Final = 64 << 40
"""io2 Block Express's."""

_log: Final = logging.getLogger(__name__)
_log.addFilter(RateLimit())  # a client causes as many records as it likes


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
        self._memory = ServerMemory()
        self._replicas: dict[int, Replica] = {}
        self._tasks = Tasks()
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
        store = BlockStore(self._disk(directory), size_bytes=row.size_bytes)
        return Replica(row, store=store, ledger=self._ledger, sync=DiskSync(), clock=asyncio.get_running_loop().time)

    async def run(self) -> None:
        """Serve all that connect."""
        async for peer in self._endpoint:
            WriterConnection(peer, memory=self._memory, tasks=self._tasks, reply=self._reply)

    async def _reply(self, command: CapsuleCommand, transfer: Transfer) -> CapsuleReply | None:
        if command.opcode is CapsuleOpcode.CREATE:
            return self._create(command)
        replica = self._replicas.get(command.volume)
        if replica is None:
            return CapsuleReply(outcome=CapsuleOutcome.UNKNOWN)
        try:
            return await replica.handle(command, transfer=transfer)
        except VolumeError as error:
            _log.error("volume %x: %s", command.volume, error)
            return CapsuleReply(outcome=CapsuleOutcome.FAILED)

    def _create(self, command: CapsuleCommand) -> CapsuleReply:
        """Make a volume, or a replica without data of one; what is there already may be the last try's."""
        is_blank = command.kind is BlockKind.ABSENT
        if (known := self._replicas.get(command.volume)) is not None:
            if known.size_bytes == command.length and known.is_blank >= is_blank:
                return CapsuleReply(outcome=CapsuleOutcome.OK)
            _log.error(
                "volume %x cannot be made: there is a replica of it, maybe an old one; to use this server for it "
                "again, stop it, remove %s, and start it", command.volume, self._directory / f"{command.volume:016x}",
            )  # fmt: skip
            return CapsuleReply(outcome=CapsuleOutcome.REFUSED)
        if not 0 < command.length <= MAX_VOLUME_BYTES or command.length % BLOCK_BYTES or command.volume >> 63:
            return CapsuleReply(outcome=CapsuleOutcome.REFUSED)
        try:
            row = VolumeRow(command.volume, command.length, 0, 0, -1 if is_blank else 0)
            replica = self._open(row)
            try:
                self._ledger.create(command.volume, size_bytes=command.length, mark=row.mark)
            except VolumeError:
                replica.store.close()
                raise
        except VolumeError as error:
            _log.error("volume %x cannot be made: %s", command.volume, error)
            return CapsuleReply(outcome=CapsuleOutcome.FAILED)
        self._replicas[command.volume] = replica
        return CapsuleReply(outcome=CapsuleOutcome.OK)

    async def close(self) -> None:
        """Finish what has begun, and close all."""
        await self._endpoint.close()
        await self._tasks.ended()
        self._memory.close()
        for replica in self._replicas.values():
            await replica.close()
