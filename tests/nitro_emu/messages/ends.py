"""Both ends of a connection between two devices of a card."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from nitro_emu.aio import Device, QpAddress
from nitro_emu.messages.listener import MessageListener, connect
from nitro_emu.messages.peer import MessagePeer
from srd.proto.wire.status import Status
from tests.patience import PATIENCE_S
from tests.srd.loopback import memory

SLOTS = 3
SLOT_BYTES = 1 << 18


@dataclass
class Ends:
    client_device: Device
    server_device: Device
    listener: MessageListener

    @property
    def target(self) -> QpAddress:
        return QpAddress.of_text_untrusted(self.listener.target)

    async def pair(self) -> tuple[MessagePeer, MessagePeer]:
        """Return the client's and the server's peer."""
        client = await connect(self.client_device, self.target, slots=SLOTS, slot_bytes=SLOT_BYTES)
        return client, await self.listener.accept()


@asynccontextmanager
async def opened(run_dir: Path) -> AsyncIterator[Ends]:
    """Open two devices, one of which listens."""
    async with (
        asyncio.timeout(2 * PATIENCE_S),
        await Device.open("efa_0", directory=run_dir) as client,
        await Device.open("efa_1", directory=run_dir) as server,
    ):
        listener = await MessageListener.create(server, slots=SLOTS, slot_bytes=SLOT_BYTES)
        try:
            yield Ends(client, server, listener)
        finally:
            await listener.close()


@asynccontextmanager
async def pair(run_dir: Path) -> AsyncIterator[tuple[MessagePeer, MessagePeer]]:
    async with opened(run_dir) as ends:
        client, server = await ends.pair()
        try:
            yield client, server
        finally:
            await client.close()
            await server.close()


async def send(peer: MessagePeer, payload: bytes, *, immediate: int | None = None) -> Status:
    with memory(payload) as region:
        return await peer.post_send(region, offset=0, length=len(payload), immediate=immediate)


async def receive(peer: MessagePeer) -> bytes:
    with await peer.recv() as message:
        return message.gather()
