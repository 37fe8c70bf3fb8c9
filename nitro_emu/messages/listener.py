"""How two ends meet: a client says HELLO to a listening queue pair, and a server makes one for it."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from typing import Final, Self

from devmem.errors import DevmemError
from nitro_emu.aio import Device, Message, QpAddress, QueuePair, Remote, Source, VerbsError, WriteNotification
from nitro_emu.errors import AbiError
from nitro_emu.messages import layouts
from nitro_emu.messages.layouts import Hello, Kind, MessageError, Refuse, Welcome
from nitro_emu.messages.peer import MessagePeer, reason_of
from srd.errors import PeerError, SrdError
from srd.notify import Notify
from srd.proto.wire.status import Status

ANSWER_WITHIN_S: Final = 10.0
"""How long a client waits for WELCOME after its HELLO was delivered, and a server for the delivery of its answer."""
MAX_PEERS: Final = 128
"""Peers of a listener at a time, half of the queue pairs that a device has by default; further ones are refused."""


class MessageListener:
    """Accepts connections. A `srd.file_transfer.transport.TargetListener`, and the `Receiver` of its queue pair."""

    def __init__(self, device: Device, *, slots: int, slot_bytes: int) -> None:
        self._device = device
        self._slots, self._slot_bytes = slots, slot_bytes
        self._qp: QueuePair | None = None
        self._accepted: deque[MessagePeer] = deque()
        self._peers: set[MessagePeer] = set()
        self._making = 0  # peers that are being made
        self._tasks: set[asyncio.Task[None]] = set()
        self._changed = Notify()
        self._end_reason: str | None = None

    @classmethod
    async def create(cls, device: Device, *, slots: int, slot_bytes: int) -> Self:
        """Make the listening queue pair; each peer has a window of so many slots. Raises VerbsError."""
        self = cls(device, slots=slots, slot_bytes=slot_bytes)
        self._qp = await device.queue_pair(receiver=self)
        return self

    @property
    def target(self) -> str:
        """The address of the listening queue pair, as text."""
        return "" if self._qp is None else self._qp.address.text()

    def on_message(self, message: Message) -> None:
        """Take a HELLO; anything else is ignored."""
        try:
            if layouts.kind_untrusted(message.view) is not Kind.HELLO:
                return
            hello = layouts.hello_untrusted(message.view)
            client = QpAddress(message.source.gid, message.source.qpn, hello.qkey)
        except (MessageError, AbiError):
            return
        finally:
            message.release()
        if self._end_reason is None and len(self._tasks) < MAX_PEERS:
            task = asyncio.ensure_future(self._welcome(client, hello))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def on_write(self, written: WriteNotification) -> None:
        """Ignore it: this queue pair has told nobody of memory."""

    def on_end(self, error: VerbsError) -> None:
        """Let `accept` raise."""
        self._end_reason = self._end_reason or f"{self._device.name}: {error}"
        self._changed.notify()

    async def _welcome(self, client: QpAddress, hello: Hello) -> None:
        """Make a peer for a client, and tell it so. One that is gone meanwhile is forgotten."""
        with suppress(VerbsError, PeerError, TimeoutError):
            async with asyncio.timeout(ANSWER_WITHIN_S):
                reason = self._objection(hello)
                if reason:
                    await self._refuse(client, Refuse(hello.nonce, reason))
                else:
                    await self._accept(client, hello)

    def _objection(self, hello: Hello) -> str:
        """Return why a client is refused; empty: it is not."""
        self._peers = {peer for peer in self._peers if not peer.released}
        if hello.version != layouts.VERSION:
            return f"speaks version {layouts.VERSION}, not {hello.version}; use the same version at both ends"
        if len(self._peers) + self._making >= MAX_PEERS:
            return f"has {MAX_PEERS} peers already; try again later"
        return ""

    async def _refuse(self, client: QpAddress, refuse: Refuse) -> None:
        if self._qp is not None:
            remote = await self._device.remote(client)
            try:
                await self._qp.send(remote, layouts.pack_refuse(refuse))
            finally:
                await remote.close()

    async def _accept(self, client: QpAddress, hello: Hello) -> None:
        self._making += 1
        try:
            peer = await MessagePeer.create(
                self._device, gid=client.gid, slots=self._slots, slot_bytes=self._slot_bytes
            )
        except (VerbsError, DevmemError) as error:
            await self._refuse(client, Refuse(hello.nonce, f"has no room: {error}"))
            return
        finally:
            self._making -= 1
        self._peers.add(peer)
        try:
            remote = await self._device.remote(client)
            peer.open(remote, hello.window)
            welcome = Welcome(hello.nonce, peer.qp.address.qkey, peer.own_window)
            _check(await peer.qp.send(remote, layouts.pack_welcome(welcome)))
        except BaseException:
            peer.end(Status.FLUSHED, "not opened")
            await peer.close()
            raise
        self._accepted.append(peer)
        self._changed.notify()

    async def accept(self) -> MessagePeer:
        """Return the next peer. Raises SrdError when the listener is closed, or the card dead."""
        while not self._accepted:
            if self._end_reason is not None:
                raise SrdError(self._end_reason)
            await self._changed.wait()
        return self._accepted.popleft()

    async def close(self) -> None:
        """Accept no more peers, and close those that there are."""
        self._end_reason = self._end_reason or "the listener is closed"
        self._changed.notify()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(peer.close() for peer in self._peers), return_exceptions=True)
        qp, self._qp = self._qp, None
        if qp is not None:
            with suppress(VerbsError):
                await qp.close()


async def connect(device: Device, address: QpAddress, *, slots: int, slot_bytes: int) -> MessagePeer:
    """Connect to a listener. Raises PeerError: it does not answer, or refuses; VerbsError: this end's card is dead."""
    peer = await MessagePeer.create(device, gid=address.gid, slots=slots, slot_bytes=slot_bytes)
    try:
        listener = await device.remote(address)
        try:
            source, welcome = await _ask(peer, listener)
            remote = await device.remote(QpAddress(source.gid, source.qpn, welcome.qkey))
        finally:
            with suppress(VerbsError):
                await listener.close()
        peer.open(remote, welcome.window)
    except BaseException:
        peer.end(Status.FLUSHED, "not opened")
        await peer.close()
        raise
    return peer


async def _ask(peer: MessagePeer, listener: Remote) -> tuple[Source, Welcome]:
    """Say HELLO; return who has welcomed the peer. Raises PeerError and VerbsError."""
    hello = Hello(layouts.VERSION, peer.qp.address.qkey, peer.nonce, peer.own_window)
    try:
        async with asyncio.timeout(ANSWER_WITHIN_S):
            _check(await peer.qp.send(listener, layouts.pack_hello(hello)))
            answer = await peer.answer
    except TimeoutError:
        reason = f"no answer within {ANSWER_WITHIN_S:g} s"
        raise PeerError(reason, status=Status.LOCAL_ERROR_UNRESP_REMOTE) from None
    if answer is None:
        raise peer.error()
    source, said = answer
    if isinstance(said, Refuse):
        raise PeerError(f"it {said.reason}", status=Status.REMOTE_ERROR_ABORT)
    return source, said


def _check(status: Status) -> None:
    if status is Status.REMOTE_ERROR_BAD_DEST_QPN:
        raise PeerError("nothing listens there (no such queue pair, or it has another key)", status=status)
    if status is not Status.OK:
        raise PeerError(reason_of(status), status=status)
