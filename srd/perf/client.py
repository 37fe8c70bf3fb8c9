"""A client's test: from the request to the report of both ends."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from typing import Final, NamedTuple, Protocol

from netns.base.addresses import host_port_text
from netns.base.tasks import first
from srd.endpoint import Endpoint
from srd.errors import PeerError
from srd.peer import Peer
from srd.perf.control import MAX_REPLY_BYTES, VERSION, Control, ControlKind, Fields, counts_untrusted
from srd.perf.errors import PerfError
from srd.perf.meter import Interval
from srd.perf.opening import Connections, StreamOpening, is_tcp, local_host, own_results
from srd.perf.parameters import Parameters
from srd.perf.payload import PayloadSource
from srd.perf.results import PerfReport, Start, results_untrusted
from srd.perf.running import FirstFailure, RunningStreams
from srd.perf.stream import shown_host
from srd.perf.tcp_streams import COOKIE_CHARACTERS, Connected, connect

START_WITHIN_S: Final = 15.0
"""How long a server may take from the request to the start."""
RESULTS_WITHIN_S: Final = 60.0
"""How long it may take for its results: it waits for what is on its way."""


_COOKIE: Final = re.compile(rf"[0-9a-f]{{{COOKIE_CHARACTERS}}}")


class PerfWatch(Protocol):
    """Told of a test while it runs."""

    def started(self, start: Start) -> None:
        """All streams are open."""

    def interval(self, interval: Interval) -> None:
        """An interval has ended."""

    def interrupted(self, report: PerfReport) -> None:
        """The test was cancelled; what this end knows of it."""


@dataclass(frozen=True, slots=True)
class ServerTarget:
    """A server."""

    host: str
    port: int
    fingerprint: str | None = None
    """Of its key; None: the known hosts decide."""


class Begun(NamedTuple):
    """A test that has started."""

    peer: Peer
    control: Control
    cookie: str
    connections: Connections


class PerfClient:
    """Runs tests over one endpoint."""

    def __init__(
        self,
        endpoint: Endpoint,
        target: ServerTarget,
        *,
        connect_timeout_s: float,
        bind: str | None = None,
        on_first_contact: Callable[[Peer], None],
    ) -> None:
        """Use `endpoint`; `bind`: the local address of TCP's connections."""
        self._endpoint, self._target = endpoint, target
        self._connect_timeout_s = connect_timeout_s
        self._bind = bind
        self._on_first_contact = on_first_contact

    async def _connect(self) -> Peer:
        target = self._target
        name = host_port_text(target.host, target.port)
        try:
            async with asyncio.timeout(self._connect_timeout_s):
                peer = await self._endpoint.connect(target.host, target.port, fingerprint=target.fingerprint)
        except TimeoutError:
            raise PerfError(f"{name}: no answer within {self._connect_timeout_s:g} s") from None
        except PeerError as error:
            raise PerfError(f"{error}; does srd perf server run there?") from error
        if peer.is_first_contact:
            self._on_first_contact(peer)
        return peer

    @property
    def endpoint(self) -> Endpoint:
        """The endpoint of all its peers."""
        return self._endpoint

    @property
    def target(self) -> ServerTarget:
        """The server."""
        return self._target

    async def run(self, parameters: Parameters, *, interval_s: float, watch: PerfWatch) -> PerfReport:
        """Run a test. Raises SrdError with one line."""
        async with AsyncExitStack() as stack:
            source = PayloadSource(parameters.block_bytes)
            stack.callback(source.close)
            failure = FirstFailure()
            stack.callback(failure.close)
            begun = await self.begin(parameters, stack=stack, parameters=asdict(parameters))
            control, connections, cookie = begun.control, begun.connections, begun.cookie
            opening = StreamOpening(
                parameters,
                is_client=True,
                source=source,
                local=(local_host(begun.peer.address[0]), self._endpoint.address[1]),
                fail=failure.set,
            )
            streams = opening.streams(connections)
            running = RunningStreams(streams, parameters=parameters, interval_s=interval_s, on_interval=watch.interval)
            stack.push_async_callback(running.close)
            other = (self._target.host, self._target.port)
            start = opening.start(streams, connections, other=other, cookie=cookie)
            watch.started(start)
            running.start()
            try:
                return await self._measure(control, running, start=start, failure=failure, connections=connections)
            except asyncio.CancelledError:
                watch.interrupted(_so_far(running, start=start, connections=connections))
                raise

    async def begin(self, test: Connected, *, stack: AsyncExitStack, **wanted: Fields) -> Begun:
        """Ask for a test, and return what it has once it has started; `stack` ends all of that. Raises SrdError."""
        peer = await self._connect()
        stack.push_async_callback(peer.close)
        control = Control(*await peer.open_stream(), most_bytes=MAX_REPLY_BYTES)
        stack.callback(control.close)
        try:
            async with asyncio.timeout(START_WITHIN_S):
                cookie = await request(control, **wanted)
                connections = await self._open_connections(test, peer=peer, cookie=cookie, stack=stack)
                await control.receive(ControlKind.START)
        except TimeoutError:
            raise PerfError(f"the test did not start within {START_WITHIN_S:g} s") from None
        return Begun(peer, control, cookie, connections)

    async def _open_connections(
        self, parameters: Connected, *, peer: Peer, cookie: str, stack: AsyncExitStack
    ) -> Connections:
        """Open what carries the data, which `stack` closes. Raises SrdError."""
        numbers = range(parameters.count)
        if is_tcp(parameters):
            sockets = list[socket.socket]()
            for number in numbers:
                one = await asyncio.to_thread(
                    connect,
                    parameters,
                    address=(shown_host(peer.address[0]), self._target.port),
                    cookie=cookie,
                    stream=number,
                    bind=self._bind,
                )
                stack.callback(one.close)
                sockets.append(one)
            return sockets
        peers = list[Peer]()
        for number in numbers:
            one_peer = await self._connect()
            stack.push_async_callback(one_peer.close)
            join = Control(*await one_peer.open_stream())
            await join.send(ControlKind.JOIN, cookie=cookie, stream=number)
            join.close()
            peers.append(one_peer)
        return peers

    async def _measure(
        self,
        control: Control,
        running: RunningStreams,
        *,
        start: Start,
        failure: FirstFailure,
        connections: Connections,
    ) -> PerfReport:
        parameters = start.parameters
        heard = asyncio.ensure_future(control.receive(ControlKind.FINISHED, ControlKind.RESULTS))
        try:
            await first(_over(running, heard, parameters=parameters), failure.wait(), running.failed())
            sent = await first(running.stop(), failure.wait())
            await control.send(ControlKind.END, sent=sent)
            async with asyncio.timeout(RESULTS_WITHIN_S):
                kind, fields = await heard
                if kind is ControlKind.FINISHED:
                    _, fields = await control.receive(ControlKind.RESULTS)
        except TimeoutError:
            raise PerfError(f"the server sent no results within {RESULTS_WITHIN_S:g} s") from None
        finally:
            if not heard.cancel():
                heard.exception()
        await first(running.arrived(counts_untrusted(fields, streams=parameters.count)), failure.wait())
        own = own_results(running.meter, connections)
        return PerfReport(start, running.meter.intervals, own, results_untrusted(fields, parameters=parameters))


def _so_far(running: RunningStreams, *, start: Start, connections: Connections) -> PerfReport:
    """Return what this end knows of a test that has not ended."""
    running.finish()
    own = own_results(running.meter, connections)
    return PerfReport(start, running.meter.intervals, own, None)


async def request(control: Control, **wanted: Fields) -> str:
    """Ask for a test; return its cookie. Raises PerfError with the server's reason."""
    await control.send(ControlKind.TEST, version=VERSION, **wanted)
    _, fields = await control.receive(ControlKind.READY)
    cookie = fields.get("cookie")
    if not isinstance(cookie, str) or not _COOKIE.fullmatch(cookie):
        raise PerfError("the server sent no cookie")
    return cookie


async def _over(
    running: RunningStreams, heard: asyncio.Future[tuple[ControlKind, Fields]], *, parameters: Parameters
) -> None:
    """Wait until the time is over, or both ends have sent all. Raises PerfError for anything else that is heard."""
    if parameters.size_bytes and not all(map(parameters.client_sends, range(parameters.count))):
        kind, _ = await asyncio.shield(heard)
        if kind is not ControlKind.FINISHED:
            raise PerfError("the server has ended the test early")
        await running.over()
        return
    await first(running.over(), asyncio.wait([heard]))
    if heard.done():
        heard.result()
        raise PerfError("the server has ended the test early")
