"""A server as its client reaches it, over SRD: one peer, opened when it is needed, and again when it has ended.

A call makes a future and no task: it posts the command, and what the peer tells sets the reply. A message is sent from
where it lies until it was acknowledged, or the call has failed, which ends the request. A reply says that all of it was
there, so that its memory may be used again: what would be sent once more is known to the server.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from typing import Final

from netns.base.addresses import host_port_text
from nitro_emu.ebs.capsule import CapsuleCommand, CapsuleError, CapsuleOutcome, CapsuleReply, reply_untrusted
from nitro_emu.ebs.link import Buffer, LinkError
from nitro_emu.ebs.link_memory import BufferSlot
from srd import Endpoint, Message, MessageBatch, Peer, PeerError, RequestError, SrdError, Status
from srd.message import WriteNotification
from srd.send_memory import SendMemory, in_place

CALL_S: Final = 2.0
"""How long a server may take for a command: disks under load take a second for an `fdatasync`."""
CONNECT_S: Final = 1.0
"""Several tries of a handshake."""

_OK: Final = CapsuleReply(outcome=CapsuleOutcome.OK)


class SrdLink:
    """One server; see `nitro_emu.ebs.link.ServerLink`. Its buffers are those of a `LinkMemory`."""

    def __init__(self, endpoint: Endpoint, host: str, port: int) -> None:
        self.name = host_port_text(host, port)
        self._endpoint = endpoint
        self._host, self._port = host, port
        self._connection: _Connection | None = None
        self._opening: asyncio.Task[_Connection] | None = None
        self._number = 0

    def call(self, command: CapsuleCommand, *, buffer: Buffer | None = None) -> asyncio.Future[CapsuleReply]:
        """See Link."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[CapsuleReply] = loop.create_future()
        timer = loop.call_later(CALL_S, _fail, future, f"{self.name}: does not answer")
        future.add_done_callback(lambda _: timer.cancel())
        self._number = number = (self._number + 1) & 0xFFFFFFFF
        if (connection := self._connection) is not None and not connection.peer.ended:
            connection.post(command, buffer, number=number, future=future)
        else:
            opening = self._open()
            opening.add_done_callback(partial(self._post_opened, command, buffer, number, future))
        return future

    def _post_opened(
        self,
        command: CapsuleCommand,
        buffer: Buffer | None,
        number: int,
        future: asyncio.Future[CapsuleReply],
        opening: asyncio.Future[_Connection],
    ) -> None:
        if future.done():
            return
        if opening.cancelled():
            _fail(future, f"{self.name}: is closed")
        elif (error := opening.exception()) is not None:
            _fail(future, str(error) if isinstance(error, LinkError) else f"{self.name}: {error}")
        else:
            opening.result().post(command, buffer, number=number, future=future)

    def _open(self) -> asyncio.Task[_Connection]:
        """Return the task that connects, for all that need it at the same time."""
        if self._opening is None or self._opening.done():
            self._opening = asyncio.ensure_future(self._connect())
        return self._opening

    async def _connect(self) -> _Connection:
        """Raises SrdError, LinkError."""
        try:
            async with asyncio.timeout(CONNECT_S):
                peer = await self._endpoint.connect(self._host, self._port)
        except TimeoutError:
            raise LinkError(f"{self.name}: does not answer") from None
        self._connection = _Connection(peer, name=self.name)
        return self._connection

    async def close(self) -> None:
        """See Link."""
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.wait([self._opening])
        if self._connection is not None:
            with suppress(PeerError, RequestError):
                await self._connection.peer.close()


class _Connection:
    """The calls to one peer; see `srd.handler.PeerHandler`."""

    def __init__(self, peer: Peer, *, name: str) -> None:
        self.peer = peer
        self._name = name
        self._calls: dict[int, asyncio.Future[CapsuleReply]] = {}  # by number
        self._sent: dict[int, tuple[asyncio.Future[CapsuleReply], SendMemory | None]] = {}  # by request
        peer.attach(self, on_write=self._on_write)

    def post(
        self, command: CapsuleCommand, buffer: Buffer | None, *, number: int, future: asyncio.Future[CapsuleReply]
    ) -> None:
        """Send a command, and set the future when it was answered, or fails."""
        memory: SendMemory | None = None
        assert buffer is None or isinstance(buffer, BufferSlot)  # noqa: S101 - as SrdLink says
        if buffer is not None and command.data_bytes:
            address, length = buffer.message(command.encode()), command.message_bytes
        else:
            memory = in_place(command.encode(key=0 if buffer is None else buffer.key))
            address, length = memory.address, memory.length
        try:
            request = self.peer.post(address, length=length, immediate=number)
        except SrdError as error:
            self._fail(future, str(error))
            return
        self._calls[number] = future
        self._sent[request] = future, memory
        future.add_done_callback(partial(self._ended, number, request))

    def _ended(self, number: int, request: int, future: asyncio.Future[CapsuleReply]) -> None:
        """Forget a call; what is not answered is not sent any more."""
        self._calls.pop(number, None)
        if (future.cancelled() or future.exception() is not None) and request in self._sent:
            self.peer.cancel(request)

    def _fail(self, future: asyncio.Future[CapsuleReply], reason: str) -> None:
        _fail(future, f"{self._name}: {reason.removeprefix(f'{self._name}: ')}")

    # -- what the peer tells ------------------------------------------------------------------------------------------

    def on_message(self, message: Message | MessageBatch) -> None:
        """Take a reply, or several."""
        is_more = True
        while is_more:
            single, is_more = (message, False) if isinstance(message, Message) else message.take()
            number = single.immediate
            try:
                self._answer(number, reply_untrusted(single.data()))
            except CapsuleError as error:
                self.peer.fail(str(error))

    def _on_write(self, written: WriteNotification) -> None:
        self._answer(written.immediate, _OK)

    def _answer(self, number: int | None, reply: CapsuleReply) -> None:
        future = None if number is None else self._calls.get(number)
        if future is not None and not future.done():
            future.set_result(reply)

    def on_completion(self, request: int, *, status: Status) -> None:
        """Let go of a message that was acknowledged, or has failed."""
        future, memory = self._sent.pop(request)
        if memory is not None:
            memory.view.release()
        if status is not Status.OK:
            self._fail(future, f"the message failed: {status.name}")

    def on_ended(self) -> None:
        """Nothing that was asked is answered any more."""
        for future in self._calls.values():
            self._fail(future, "has ended")


def _fail(future: asyncio.Future[CapsuleReply], reason: str) -> None:
    if not future.done():
        future.set_exception(LinkError(reason))
        future.exception()  # who asked may have given up
