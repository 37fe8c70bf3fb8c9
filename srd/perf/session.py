"""A test at the server: what a client has joined, and what every test does, whatever it measures."""

from __future__ import annotations

import asyncio
import hmac
import secrets
import socket
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from typing import ClassVar, Final

from netns.base.tasks import first
from srd.endpoint import Endpoint
from srd.errors import SrdError
from srd.peer import Peer
from srd.perf.control import Control, ControlKind, Fields
from srd.perf.errors import PerfError
from srd.perf.opening import Connections, is_tcp
from srd.perf.tcp_streams import COOKIE_CHARACTERS, Acceptor, Connected

JOIN_WITHIN_S: Final = 15.0
"""How long the streams of a test may take to be opened."""
GRACE_S: Final = 30.0
"""How much longer than its time a test may take, and how long one may last in which nothing moves."""
GOODBYE_WITHIN_S: Final = 5.0
"""How long a client may take to leave after its test."""
WATCH_S: Final = 1.0
"""How often a server looks whether something has moved."""

Write = Callable[[str], None]
"""Prints text that may have several lines."""


class TestSession:
    """A test that runs, or that is being opened."""

    def __init__(self, parameters: Connected) -> None:
        self.parameters = parameters
        self.cookie = secrets.token_hex(COOKIE_CHARACTERS // 2)
        self._joined: dict[int, Peer] = {}
        self._complete = asyncio.Event()

    def join_untrusted(self, fields: Fields, peer: Peer) -> None:
        """Take a peer for a stream. Raises PerfError."""
        cookie, number = fields.get("cookie"), fields.get("stream")
        text = cookie if isinstance(cookie, str) and cookie.isascii() else ""
        if not hmac.compare_digest(text, self.cookie):
            raise PerfError("a stream of no test")
        if type(number) is not int or not 0 <= number < self.parameters.count or number in self._joined:
            raise PerfError("a stream that the test does not have")
        if is_tcp(self.parameters):
            raise PerfError("a peer for a stream of TCP")
        self._joined[number] = peer
        if len(self._joined) == self.parameters.count:
            self._complete.set()

    async def peers(self) -> list[Peer]:
        """Return the peers of all streams, by number, once they are there."""
        await self._complete.wait()
        return [self._joined[number] for number in range(self.parameters.count)]

    async def close(self) -> None:
        """Close the peers that have joined."""
        await asyncio.gather(*(peer.close() for peer in self._joined.values()), return_exceptions=True)


@dataclass(frozen=True, slots=True)
class Printer:
    """How a server's figures are printed."""

    write: Write
    as_json: bool
    interval_s: float
    """Length of an interval."""


class Test(ABC):
    """One test, at the server."""

    asks: ClassVar[ControlKind]
    """The first message of the client once it was started."""

    def __init__(self, session: TestSession, *, control: Control, peer: Peer, endpoint: Endpoint) -> None:
        self._session, self._control, self._peer, self._endpoint = session, control, peer, endpoint

    async def run(self, printer: Printer) -> None:
        """Serve it to its end. Raises SrdError, and what lack of resources raises; the client was told of it."""
        heard = asyncio.ensure_future(self._control.receive(self.asks))
        async with AsyncExitStack() as stack:
            stack.callback(_forget, heard)
            try:
                await self._run(printer, heard=heard, stack=stack)
            except Exception as error:  # before anything is closed: the client is to hear the reason first
                await self._tell(error, heard=heard)
                raise

    @abstractmethod
    async def _run(
        self, printer: Printer, *, heard: asyncio.Future[tuple[ControlKind, Fields]], stack: AsyncExitStack
    ) -> None:
        """Serve it; `heard` is the client's next message."""

    async def _tell(self, error: Exception, *, heard: asyncio.Future[tuple[ControlKind, Fields]]) -> None:
        """Tell the client why, and wait until it has left."""
        with suppress(PerfError):
            what = "" if isinstance(error, SrdError) else f"internal error of the server: {type(error).__name__}: "
            await self._control.send(ControlKind.FAILED, reason=f"{what}{error}")
        await asyncio.wait([heard], timeout=GOODBYE_WITHIN_S)
        if heard.done() and heard.exception() is None:  # it has ended its test meanwhile
            await self._control.ended(within_s=GOODBYE_WITHIN_S)

    async def _open(self, heard: asyncio.Future[tuple[ControlKind, Fields]], stack: AsyncExitStack) -> Connections:
        """Return what carries the streams. Raises PerfError when they are not opened in time."""
        session = self._session
        acceptor = None
        if is_tcp(session.parameters):
            acceptor = Acceptor(session.parameters, address=self._endpoint.address, cookie=session.cookie)
            stack.callback(acceptor.close)
            acceptor.start()
        await self._control.send(ControlKind.READY, cookie=session.cookie)
        try:
            async with asyncio.timeout(JOIN_WITHIN_S):
                joined = acceptor.sockets() if acceptor is not None else session.peers()
                connections: Connections | Fields = await first(joined, heard_fields(heard))
        except TimeoutError:
            raise PerfError(f"not all streams were opened within {JOIN_WITHIN_S:g} s") from None
        if isinstance(connections, dict):
            raise PerfError("the client has ended the test before its start")
        for connection in connections:
            if isinstance(connection, socket.socket):
                stack.callback(connection.close)
        return connections


async def heard_fields(heard: asyncio.Future[tuple[ControlKind, Fields]]) -> Fields:
    """Return the fields of the client's next message."""
    _, fields = await asyncio.shield(heard)
    return fields


def _forget(heard: asyncio.Future[tuple[ControlKind, Fields]]) -> None:
    if not heard.cancel() and not heard.cancelled():
        heard.exception()
