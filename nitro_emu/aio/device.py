"""A device of a card, opened for asyncio."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path
from typing import Final, Self

from devmem.region import Region
from nitro_emu.aio.address import QpAddress
from nitro_emu.aio.handles import Handles, Remote
from nitro_emu.aio.mailbox import Receiver
from nitro_emu.aio.memory import Memory
from nitro_emu.aio.poller import CompletionPoller
from nitro_emu.aio.queue_pair import QpSettings, QueuePair
from nitro_emu.errors import VerbsError
from nitro_emu.verbs import Access, Context, MemoryRegion, ProtectionDomain
from srd.proto.wire.status import Status

ADAPTIVE_POLL_S: Final = 0.0005
"""How long the event loop polls after a completion; the same as `srd`'s own `adaptive_poll_s`, and the card's."""


class Device:
    """An open device. An async context manager. Made by `open`."""

    def __init__(self, context: Context, pd: ProtectionDomain, *, adaptive_poll_s: float) -> None:
        self.name = context.name
        self.gid = context.attributes.gid
        self.mtu_bytes = context.attributes.mtu_bytes
        """The longest message."""
        self.bytes_copied = 0
        """Payload bytes that were copied: to send slots, into requests, and by `Message.gather`."""
        self._context, self._pd = context, pd
        self._handles = Handles(pd)
        self._queue_pairs: set[QueuePair] = set()
        self._error: VerbsError | None = None
        self._poller = CompletionPoller(context, adaptive_poll_s=adaptive_poll_s, on_dead=self._on_dead)

    @classmethod
    async def open(cls, name: str, *, directory: Path | None = None, adaptive_poll_s: float = ADAPTIVE_POLL_S) -> Self:
        """Open a device. Raises VerbsError: it does not exist (ENODEV), or may not be opened.

        `directory`: of the card's sockets, by default $NITRO_CARD_DIR; `adaptive_poll_s`: how long the event loop polls
        for more after a completion, instead of sleeping.
        """

        def make() -> tuple[Context, ProtectionDomain]:
            context = Context(name, directory=directory)
            try:
                return context, ProtectionDomain(context)
            except BaseException:
                context.close()
                raise

        context, pd = await asyncio.to_thread(make)
        try:
            return cls(context, pd, adaptive_poll_s=adaptive_poll_s)
        except BaseException:
            context.close()
            raise

    @property
    def ended(self) -> bool:
        """Whether the card is dead, or the device closed."""
        return self._error is not None or self._context.link.ended

    def check(self) -> None:
        """Raise VerbsError (EIO) if the card is dead, or the device closed."""
        if self._error is not None:
            raise VerbsError(self._error.errno, str(self._error))
        self._context.link.check()

    async def queue_pair(self, settings: QpSettings | None = None, *, receiver: Receiver | None = None) -> QueuePair:
        """Create a queue pair, ready to send and to receive. Raises VerbsError.

        `receiver` takes what arrives; by default it is kept for `QueuePair.recv` and `recv_write`.
        """
        self.check()
        qp = await QueuePair.create(
            self._pd,
            settings or QpSettings(),
            poller=self._poller,
            handles=self._handles,
            receiver=receiver,
            counted=self._count,
            on_closed=self._queue_pairs.discard,
        )
        if self.ended:  # the card has died, or the device was closed meanwhile
            qp.end(Status.FLUSHED, VerbsError(errno.EIO, "the device is closed"))
            self.check()
        self._queue_pairs.add(qp)
        return qp

    def _count(self, size_bytes: int) -> None:
        self.bytes_copied += size_bytes

    async def register(
        self, region: Region, *, offset: int = 0, length: int | None = None, access: Access = Access.LOCAL_WRITE
    ) -> Memory:
        """Register a part of a region, by default from `offset` to its end. Raises VerbsError."""
        self.check()

        def make() -> MemoryRegion:
            return MemoryRegion(self._pd, region, offset=offset, length=length, access=access)

        return Memory(await asyncio.to_thread(make), region, offset=offset)

    async def remote(self, address: QpAddress) -> Remote:
        """Return a queue pair to send to. Does not wait for it; it need not even exist. Raises VerbsError."""
        self.check()
        return await self._handles.remote(address)

    def _on_dead(self, error: VerbsError) -> None:
        self._error = error
        self._end_all(Status.LOCAL_ERROR_QP_INTERNAL_ERROR, error)

    def _end_all(self, status: Status, error: VerbsError) -> None:
        for qp in list(self._queue_pairs):
            qp.end(status, error)

    async def close(self) -> None:
        """Close the device at once, with all that was made in it. Open requests end with FLUSHED."""
        if self._error is None:
            self._error = VerbsError(errno.EIO, "the device is closed")
            self._end_all(Status.FLUSHED, self._error)
        self._poller.close()
        self._context.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
