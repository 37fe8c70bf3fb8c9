"""The same servers and the same writer over TCP: capsules on one connection a server, data behind them.

A command is its number, the length of its data, its capsule, and the data of a WRITE; a reply likewise. It is as little
as TCP allows: no handshake of its own, no encryption, nothing sent that SRD's messages do not have.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any, Final

from netns.base.output import emit
from nitro_emu.ebs.attachment import Attachment, AttachmentSettings, claimed
from nitro_emu.ebs.capsule import (
    COMMAND_BYTES,
    MAX_IO_BYTES,
    CapsuleCommand,
    CapsuleOutcome,
    CapsuleReply,
    command_untrusted,
    reply_untrusted,
)
from nitro_emu.ebs.link import URGENT_BYTES, Buffer, LinkError
from nitro_emu.ebs.replicas import ReplicatedVolume
from nitro_emu.ebs.server.disk import OsDisk
from nitro_emu.ebs.server.disk_sync import DiskSync
from nitro_emu.ebs.server.ledger import Ledger, VolumeRow
from nitro_emu.ebs.server.replica import Replica
from nitro_emu.ebs.server.store import BlockStore
from nitro_emu.ebs.xts import KEY_BYTES, EncryptedDevice
from srd.perf.tcp_socket import CUBIC

VOLUME: Final = 1
CALL_S: Final = 2.0
"""As long as SRD's link waits."""
REPLY_BYTES: Final = len(CapsuleReply(outcome=CapsuleOutcome.OK).encode())
HEAD: Final = struct.Struct("!II")  # number, length of the data
READ_AHEAD_BYTES: Final = 2 * MAX_IO_BYTES


class _Transfer:
    """The data of a command: what came with it, and what goes with its reply."""

    def __init__(self, data: memoryview) -> None:
        self.data = data
        self.memory = memoryview(b"" if data else bytearray(MAX_IO_BYTES))
        self.pushed = 0

    def push(self, length_bytes: int) -> None:
        self.pushed = length_bytes


async def serve(directory: str, host: str, port: int, size_bytes: int) -> int:
    """Serve one volume until it is cancelled."""
    path = Path(directory)
    path.mkdir(parents=True)  # noqa: ASYNC240 - before it serves
    ledger = Ledger(path / "volumes.db")
    ledger.create(VOLUME, size_bytes=size_bytes)
    replica = Replica(
        VolumeRow(VOLUME, size_bytes, 0, 0, 0),
        store=BlockStore(OsDisk(path), size_bytes=size_bytes),
        ledger=ledger,
        sync=DiskSync(),
        clock=asyncio.get_running_loop().time,
    )
    server = await asyncio.start_server(lambda r, w: _serve(replica, r, w), host, port, limit=READ_AHEAD_BYTES)
    emit("ready")
    async with server:
        await server.serve_forever()
    return 0


async def _serve(replica: Replica, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    _use_cubic(writer)
    tasks = set[asyncio.Task[None]]()
    with suppress(asyncio.IncompleteReadError, OSError):
        while True:
            number, length = HEAD.unpack(await reader.readexactly(HEAD.size))
            message = await reader.readexactly(COMMAND_BYTES + length)
            transfer = _Transfer(memoryview(message)[COMMAND_BYTES:])
            task = asyncio.ensure_future(_do(replica, command_untrusted(message), transfer, writer, number))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
    writer.close()


async def _do(
    replica: Replica, command: CapsuleCommand, transfer: _Transfer, writer: asyncio.StreamWriter, number: int
) -> None:
    reply = await replica.handle(command, transfer=transfer) or CapsuleReply(outcome=CapsuleOutcome.OK)
    with suppress(OSError):
        head = HEAD.pack(number, transfer.pushed) + reply.encode()
        writer.writelines([head, transfer.memory[: transfer.pushed]])
        await writer.drain()


class _Memory:
    is_short = False

    async def take(self, length_bytes: int) -> Buffer:
        return _Buffer(length_bytes)

    async def take_urgent(self) -> Buffer:
        """Return a buffer: there are as many as it needs."""
        return _Buffer(URGENT_BYTES)


class _Buffer:
    key = 0

    def __init__(self, length_bytes: int) -> None:
        self.view = memoryview(bytearray(length_bytes))

    def give_back(self) -> None:
        """Nobody else uses it."""


class TcpLink:
    """One server; see `nitro_emu.ebs.link.ServerLink`."""

    def __init__(self, host: str, port: int) -> None:
        self.name = f"{host}:{port}"
        self._address = (host, port)
        self._writer: asyncio.StreamWriter | None = None
        self._receiving: asyncio.Task[None] | None = None
        self._opening = asyncio.Lock()
        self._calls: dict[int, tuple[asyncio.Future[CapsuleReply], Buffer | None]] = {}
        self._number = 0

    def call(self, command: CapsuleCommand, *, buffer: Buffer | None = None) -> asyncio.Future[CapsuleReply]:
        return asyncio.ensure_future(self._call(command, buffer))

    async def _call(self, command: CapsuleCommand, buffer: Buffer | None) -> CapsuleReply:
        self._number += 1
        number = self._number
        future: asyncio.Future[CapsuleReply] = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(CALL_S):
                writer = await self._connected()
                self._calls[number] = (future, buffer)
                head = HEAD.pack(number, command.data_bytes) + command.encode()
                writer.writelines([head, buffer.view[: command.data_bytes]] if buffer is not None else [head])
                await writer.drain()
                return await future
        except OSError as error:  # a timeout, too
            raise LinkError(f"{self.name}: {str(error) or 'does not answer'}") from error
        finally:
            self._calls.pop(number, None)

    async def _connected(self) -> asyncio.StreamWriter:
        async with self._opening:
            if self._writer is None:
                reader, self._writer = await asyncio.open_connection(*self._address, limit=READ_AHEAD_BYTES)
                _use_cubic(self._writer)
                self._receiving = asyncio.ensure_future(self._receive(reader))
            return self._writer

    async def _receive(self, reader: asyncio.StreamReader) -> None:
        with suppress(asyncio.IncompleteReadError, OSError):
            while True:
                number, length = HEAD.unpack(await reader.readexactly(HEAD.size))
                reply = reply_untrusted(await reader.readexactly(REPLY_BYTES))
                data = await reader.readexactly(length)
                future, buffer = self._calls.get(number, (None, None))
                if future is not None and not future.done():
                    if buffer is not None and data:
                        buffer.view[: len(data)] = data
                    future.set_result(reply)
        self._writer = None
        for future, _ in self._calls.values():
            if not future.done():
                future.set_exception(ConnectionResetError("has ended"))
                future.exception()

    async def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
        if self._receiving is not None:
            self._receiving.cancel()


async def attach(run_dir: str, name: str, size_bytes: int, servers: list[tuple[str, int]]) -> int:
    """Attach the volume over TCP, encrypted as ours is, until it is detached."""
    async with AsyncExitStack() as stack:
        volume = await stack.enter_async_context(
            ReplicatedVolume(
                name,
                volume=VOLUME,
                size_bytes=size_bytes,
                links=[TcpLink(host, port) for host, port in servers],
                memory=_Memory(),
            )
        )
        device = EncryptedDevice(volume, key=bytes(range(KEY_BYTES)))
        settings = AttachmentSettings(name=name, run_dir=Path(run_dir))
        control = stack.enter_context(claimed(settings))
        attachment = await stack.enter_async_context(Attachment.open(settings, control=control, device=device))
        emit("ready")
        await attachment.detached.wait()
    return 0


def _use_cubic(writer: asyncio.StreamWriter) -> None:
    connection: Any = writer.get_extra_info("socket")
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, CUBIC.encode())
