"""A server as its client reaches it, over SRD: one peer, opened when it is needed, and again when it has ended."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from typing import Final

from netns.base.addresses import host_port_text
from nitro_emu.ebs.capsule import CapsuleError, Command, Outcome, Reply, reply_untrusted
from nitro_emu.ebs.link import Buffer, LinkError
from srd import Endpoint, Peer, PeerError, RequestError, SrdError

CALL_S: Final = 2.0
"""How long a server may take for a command: disks under load take a second for an `fdatasync`."""
CONNECT_S: Final = 1.0
"""Several tries of a handshake."""


class SrdLink:
    """One server; see `nitro_emu.ebs.link.Link`."""

    def __init__(self, endpoint: Endpoint, host: str, port: int) -> None:
        self.name = host_port_text(host, port)
        self._endpoint = endpoint
        self._host, self._port = host, port
        self._peer: Peer | None = None
        self._opening: asyncio.Task[Peer] | None = None
        self._receiving: list[asyncio.Task[None]] = []
        self._calls: dict[int, asyncio.Future[Reply]] = {}
        self._number = 0

    async def call(self, command: Command, *, buffer: Buffer | None = None) -> Reply:
        """See Link."""
        self._number = (self._number + 1) & 0xFFFFFFFF
        number = self._number
        command = replace(command, number=number, key=0 if buffer is None else buffer.key)
        try:
            async with asyncio.timeout(CALL_S):
                peer = await self._connected()
                future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
                self._calls[number] = future
                await peer.send(command.encode())
                return await future
        except TimeoutError:
            raise LinkError(f"{self.name}: does not answer") from None
        except PeerError as error:  # it has the address
            raise LinkError(str(error)) from error
        except SrdError as error:
            raise LinkError(f"{self.name}: {error}") from error
        finally:
            self._calls.pop(number, None)

    async def _connected(self) -> Peer:
        """Return the peer, for all that need it at the same time. Raises SrdError."""
        if self._peer is not None and not self._peer.ended:
            return self._peer
        if self._opening is None or self._opening.done():
            self._opening = asyncio.ensure_future(self._open())
            self._opening.add_done_callback(lambda done: done.cancelled() or done.exception())  # who asked may be gone
        return await asyncio.shield(self._opening)

    async def _open(self) -> Peer:
        try:
            async with asyncio.timeout(CONNECT_S):
                peer = await self._endpoint.connect(self._host, self._port)
        except TimeoutError:
            raise LinkError(f"{self.name}: does not answer") from None
        for task in self._receiving:
            task.cancel()
        self._peer = peer
        self._receiving = [
            asyncio.ensure_future(self._receive(peer, receive_one))
            for receive_one in (self._receive_reply, self._receive_data)
        ]
        return peer

    async def _receive(self, peer: Peer, receive_one: Callable[[Peer], Awaitable[None]]) -> None:
        """Receive until the peer ends; then nothing that was asked of it is answered any more."""
        try:
            while True:
                await receive_one(peer)
        except CapsuleError as error:
            peer.fail(str(error))
        except PeerError:
            pass
        if peer is self._peer:
            self._peer = None
            for future in self._calls.values():
                if not future.done():
                    future.set_exception(LinkError(f"{self.name}: has ended"))
                    future.exception()  # who asked may have given up

    async def _receive_reply(self, peer: Peer) -> None:
        reply = reply_untrusted((await peer.recv()).data())
        self._answer(reply.number, reply)

    async def _receive_data(self, peer: Peer) -> None:
        number = (await peer.recv_write()).immediate
        self._answer(number, Reply(outcome=Outcome.OK, number=number))

    def _answer(self, number: int, reply: Reply) -> None:
        future = self._calls.get(number)
        if future is not None and not future.done():
            future.set_result(reply)

    async def close(self) -> None:
        """See Link."""
        tasks = [*self._receiving, *([self._opening] if self._opening is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._peer is not None:
            with suppress(PeerError, RequestError):
                await self._peer.close()
