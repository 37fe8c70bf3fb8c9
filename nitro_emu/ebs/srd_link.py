"""A server as its client reaches it, over SRD: one peer, opened when it is needed, and again when it has ended.

A call makes no task and no future: it posts the command, and what the peer tells ends it. A message is sent from
where it lies until it was acknowledged, or the call has failed, which ends the request. A reply says that all of it was
there, so that its memory may be used again: what would be sent once more is known to the server.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

from netns.base.addresses import host_port_text
from nitro_emu.ebs.capsule import CapsuleCommand, CapsuleError, CapsuleOutcome, CapsuleReply, reply_untrusted
from nitro_emu.ebs.link import Buffer, LinkError, OnEnd
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
        self._opening: asyncio.Task[None] | None = None
        self._number = 0
        self._calls: dict[int, _Call] = {}  # by number, and so in the order of their deadlines
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, command: CapsuleCommand, *, buffer: Buffer | None = None, on_end: OnEnd) -> _Call:
        """See Link."""
        self._number = number = (self._number + 1) & 0xFFFFFFFF
        loop = asyncio.get_running_loop()
        call = _Call(self._calls, number, command, buffer, on_end, give_up_at=loop.time() + CALL_S)
        self._calls[number] = call
        self._arm(call)
        if (connection := self._connection) is not None and not connection.peer.ended:
            connection.post(call)
        elif self._opening is None or self._opening.done():
            self._opening = asyncio.ensure_future(self._open())
        return call

    def _give_up(self) -> None:
        """End the calls whose time is over, and look again when the next one's is."""
        self._timer = None
        for call in list(self._calls.values()):
            if call.give_up_at > asyncio.get_running_loop().time():
                self._arm(call)
                return
            call.fail(f"{self.name}: does not answer")

    def _arm(self, call: _Call) -> None:
        """Have `_give_up` look when a call's time is over, unless it does so before."""
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_at(call.give_up_at, self._give_up)

    async def _open(self) -> None:
        """Connect, and post what waits for it."""
        try:
            async with asyncio.timeout(CONNECT_S):
                peer = await self._endpoint.connect(self._host, self._port)
        except (TimeoutError, SrdError) as error:
            reason = "does not answer" if isinstance(error, TimeoutError) else str(error)
            self._opening = None  # who is told may try again at once
            for call in self._unposted():
                call.fail(f"{self.name}: {reason}")
            return
        self._connection = _Connection(peer, name=self.name, calls=self._calls)
        for call in self._unposted():
            self._connection.post(call)

    def _unposted(self) -> list[_Call]:
        return [call for call in self._calls.values() if call.connection is None]

    async def close(self) -> None:
        """See Link."""
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.wait([self._opening])
        for call in self._unposted():
            call.fail(f"{self.name}: is closed")
        if self._timer is not None:
            self._timer.cancel()
        if self._connection is not None:
            with suppress(PeerError, RequestError):
                await self._connection.peer.close()


class _Call:
    """A command that is to be done; see `nitro_emu.ebs.link.Pending`."""

    __slots__ = ("_calls", "_on_end", "buffer", "command", "connection", "give_up_at", "memory", "number", "request")

    def __init__(
        self,
        calls: dict[int, _Call],
        number: int,
        command: CapsuleCommand,
        buffer: Buffer | None,
        on_end: OnEnd,
        *,
        give_up_at: float,
    ) -> None:
        """`calls`: those of its link, until they have ended."""
        self._calls = calls
        self.number = number
        self.command = command
        self.buffer = buffer
        self._on_end = on_end
        self.give_up_at = give_up_at
        self.connection: _Connection | None = None
        self.request = 0
        self.memory: SendMemory | None = None

    def answer(self, reply: CapsuleReply) -> None:
        """End it."""
        if self._calls.pop(self.number, None) is not None:
            self._on_end(reply)

    def fail(self, reason: str) -> None:
        """End it without a reply."""
        if self.cancel():
            self._on_end(LinkError(reason))

    def cancel(self) -> bool:
        """End it, and what is not sent yet is not sent any more; return whether it had not ended."""
        if self._calls.pop(self.number, None) is None:
            return False
        if self.connection is not None:
            self.connection.cancel(self)
        return True


class _Connection:
    """The calls to one peer; see `srd.handler.PeerHandler`."""

    def __init__(self, peer: Peer, *, name: str, calls: dict[int, _Call]) -> None:
        self.peer = peer
        self._name = name
        self._calls = calls
        self._sent: dict[int, _Call] = {}  # by request
        peer.attach(self, on_write=self._on_write)

    def post(self, call: _Call) -> None:
        """Send a command."""
        command, buffer = call.command, call.buffer
        assert buffer is None or isinstance(buffer, BufferSlot)  # noqa: S101 - as SrdLink says
        if buffer is not None and command.data_bytes:
            address, length = buffer.message(command.encode()), command.message_bytes
        else:
            call.memory = in_place(command.encode(key=0 if buffer is None else buffer.key))
            address, length = call.memory.address, call.memory.length
        try:
            call.request = self.peer.post(address, length=length, immediate=call.number)
        except SrdError as error:
            call.fail(self._named(str(error)))
            return
        call.connection = self
        self._sent[call.request] = call

    def cancel(self, call: _Call) -> None:
        """Have what is left of a call's message not be sent."""
        if call.request in self._sent:
            self.peer.cancel(call.request)

    def _named(self, reason: str) -> str:
        return f"{self._name}: {reason.removeprefix(f'{self._name}: ')}"

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
        call = None if number is None else self._calls.get(number)
        if call is not None and call.connection is self:
            call.answer(reply)

    def on_completion(self, request: int, *, status: Status) -> None:
        """Let go of a message that was acknowledged, or has failed."""
        call = self._sent.pop(request)
        if call.memory is not None:
            call.memory.view.release()
        if status is not Status.OK:
            call.fail(self._named(f"the message failed: {status.name}"))

    def on_ended(self) -> None:
        """Nothing that was asked is answered any more."""
        for call in [each for each in self._calls.values() if each.connection is self]:
            call.fail(self._named("has ended"))
