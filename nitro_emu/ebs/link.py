"""What the writer needs of the way to a server: calls that end, and memory that servers read and write."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
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

    def give_back(self, *, is_quiet: bool) -> None:
        """Return it. Unless it `is_quiet`, a server may still use it: it is reachable for none of them from now on."""


class BufferMemory(Protocol):
    """Where buffers come from."""

    @property
    def is_short(self) -> bool:
        """Whether most of it is in use."""

    async def take(self, length_bytes: int) -> Buffer:
        """Return a buffer, once there is one."""

    async def take_urgent(self) -> Buffer:
        """Return one of URGENT_BYTES that requests do not use: they may wait for what it is for."""


OnEnd = Callable[[CapsuleReply | LinkError], None]
"""Told once what has come of a call: at once, within the event loop's turn in which it came, or while it is begun."""


class Pending(Protocol):
    """A call that has not ended."""

    def cancel(self) -> object:
        """End it: nothing is told. The server may still use the buffer."""


class ServerLink(Protocol):
    """One server."""

    name: str

    def begin(self, command: CapsuleCommand, *, buffer: Buffer | None = None, on_end: OnEnd) -> Pending:
        """Have it do a command on the memory of `buffer`; connect before, if need be.

        `on_end` gets its reply, or LinkError, within a bound. After an error the server may still use the buffer.
        """

    async def close(self) -> None:
        """End the connection."""


def call(link: ServerLink, command: CapsuleCommand, *, buffer: Buffer | None = None) -> asyncio.Future[CapsuleReply]:
    """Begin a call; return what comes of it as a future, whose cancellation ends it. Its error is LinkError."""
    future: asyncio.Future[CapsuleReply] = asyncio.get_running_loop().create_future()

    def on_end(result: CapsuleReply | LinkError) -> None:
        if future.done():
            return
        if isinstance(result, CapsuleReply):
            future.set_result(result)
        else:
            future.set_exception(result)
            future.exception()  # who asked may have given up

    pending = link.begin(command, buffer=buffer, on_end=on_end)
    future.add_done_callback(lambda ended: pending.cancel() if ended.cancelled() else None)
    return future
