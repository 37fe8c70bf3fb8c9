"""What the writer needs of the way to a server: calls that end, and memory that servers read and write."""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

from nitro_emu.ebs.capsule import CapsuleCommand, CapsuleReply
from nitro_emu.ebs.errors import VolumeError

URGENT_BYTES: Final = 64 << 10


class LinkError(VolumeError):
    """A server did not answer in time, or cannot be reached; whether it has done the command is unknown."""


class Buffer(Protocol):
    """Memory of one request, which servers may reach until it is given back."""

    view: memoryview

    @property
    def key(self) -> int:
        """What servers name to reach it."""

    def give_back(self) -> None:
        """Return it: no server reaches it from now on."""


class BufferMemory(Protocol):
    """Where buffers come from."""

    @property
    def is_short(self) -> bool:
        """Whether most of it is in use."""

    async def take(self, length_bytes: int) -> Buffer:
        """Return a buffer, once there is one."""

    async def take_urgent(self) -> Buffer:
        """Return one of URGENT_BYTES that requests do not use: they may wait for what it is for."""


class ServerLink(Protocol):
    """One server."""

    name: str

    def call(self, command: CapsuleCommand, *, buffer: Buffer | None = None) -> asyncio.Future[CapsuleReply]:
        """Have it do a command on the memory of `buffer`; connect before, if need be.

        The result is its reply, or LinkError, within a bound. After an error, and when the future was cancelled, the
        server may still use the buffer.
        """

    async def close(self) -> None:
        """End the connection."""
