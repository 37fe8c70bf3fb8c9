"""A server: serves one test at a time, and refuses others with the reason.

Whatever a client sends, or fails to send, ends its own test at most. What a client can make a server keep is bounded:
peers that have not said what they are (MAX_NEWCOMERS, for HELLO_WITHIN_S), the streams of one test, their intervals.
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
import socket
import time
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack, suppress
from typing import Any, Final

from srd.endpoint import Endpoint
from srd.errors import SrdError
from srd.io.addresses import host_port_text
from srd.peer import Peer
from srd.perf.control import VERSION, Control, Fields, Kind, counts_untrusted
from srd.perf.errors import PerfError
from srd.perf.iperf_json import document
from srd.perf.meter import Interval
from srd.perf.opening import Connections, Opening, buffers_of, congestion_of, is_tcp, local_host
from srd.perf.parameters import Parameters, parameters_untrusted
from srd.perf.payload import Source
from srd.perf.results import Report, Results, Start, describe, encode, sendable_output
from srd.perf.running import Failure, Running, first
from srd.perf.tcp_streams import COOKIE_CHARACTERS, Acceptor
from srd.perf.text import TextReport

HELLO_WITHIN_S: Final = 5.0
"""How long a peer may take to say what it is."""
MAX_NEWCOMERS: Final = 256
"""Peers that have not said it; more are closed at once."""
JOIN_WITHIN_S: Final = 15.0
"""How long the streams of a test may take to be opened."""
GRACE_S: Final = 30.0
"""How much longer than its time a test may take, and how long one may last in which nothing moves."""
GOODBYE_WITHIN_S: Final = 5.0
"""How long a client may take to leave after its test."""
INTERVAL_S: Final = 1.0
"""iperf3's default."""
_WATCH_S: Final = 1.0

Write = Callable[[str], None]
"""Prints text that may have several lines."""


class Session:
    """A test that runs, or that is being opened."""

    def __init__(self, parameters: Parameters) -> None:
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


class Server:
    """Serves an endpoint's clients."""

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        write: Write,
        note: Write,
        as_json: bool = False,
        interval_s: float = INTERVAL_S,
    ) -> None:
        """`write` prints a test's figures, `note` one line of what goes wrong."""
        self._endpoint = endpoint
        self._write, self._note = write, note
        self._as_json = as_json
        self._interval_s = interval_s
        self._session: Session | None = None
        self._tasks: set[asyncio.Task[None]] = set()  # one accepts, the others have a peer each
        self._outcomes: asyncio.Queue[int | BaseException] = asyncio.Queue()  # per test, or a fatal error

    async def serve(self, *, one_off: bool = False) -> int:
        """Serve until cancelled; with `one_off` until one test has ended. Return 0 if it has succeeded, else 1.

        Raises SrdError when the endpoint fails, and whatever `write` raises.
        """
        self._spawn(self._accept())
        try:
            while True:
                outcome = await self._outcomes.get()
                if isinstance(outcome, BaseException):
                    raise outcome
                if one_off:
                    return outcome
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a task in the background; an exception of it ends the server."""

        def ended(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            if not task.cancelled() and (error := task.exception()) is not None:
                self._outcomes.put_nowait(error)

        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(ended)

    async def _accept(self) -> None:
        while True:
            self._spawn(self._welcome(await self._endpoint.accept()))

    async def _welcome(self, peer: Peer) -> None:
        """Find out what a peer is for; serve its test, or give it to the running one."""
        belongs_to_test = False
        try:
            if len(self._tasks) > MAX_NEWCOMERS:
                return
            async with asyncio.timeout(HELLO_WITHIN_S):
                control = Control(*await peer.accept_stream())
                kind, fields = await control.receive(Kind.TEST, Kind.JOIN)
            if kind is Kind.TEST:
                await self._test(fields, control=control, peer=peer)
            elif self._session is not None:
                self._session.join_untrusted(fields, peer)
                belongs_to_test = True
                control.close()
        except TimeoutError:
            pass  # it said nothing
        except BrokenPipeError:
            raise  # the output has no reader, which concerns all tests
        except Exception as error:  # noqa: BLE001 - also internal errors and lack of resources
            what = "" if isinstance(error, SrdError) else f"{type(error).__name__}: "
            self._note(f"{host_port_text(*peer.address)}: {what}{error}")
        finally:
            if not belongs_to_test:
                await peer.close()

    async def _test(self, fields: Fields, *, control: Control, peer: Peer) -> None:
        """Serve a test, or refuse it."""
        try:
            self._session = self._admitted_untrusted(fields)
        except PerfError as error:
            await self._refuse(control, error)
            return
        status = 1
        try:
            await Test(self._session, control=control, peer=peer, endpoint=self._endpoint).run(self)
            status = 0
        finally:
            session, self._session = self._session, None
            await session.close()
            self._outcomes.put_nowait(status)

    def _admitted_untrusted(self, fields: Fields) -> Session:
        """Return a new test. Raises PerfError with the reason why there is none."""
        if fields.get("version") != VERSION:
            raise PerfError("client and server are of different versions; update one")
        parameters = parameters_untrusted(fields.get("parameters"))
        if self._session is not None:
            raise PerfError("the server is busy running a test; try again later")
        return Session(parameters)

    async def _refuse(self, control: Control, error: PerfError) -> None:
        """Tell a client why, and wait until it has heard."""
        with suppress(PerfError, TimeoutError):
            async with asyncio.timeout(GOODBYE_WITHIN_S):
                await control.send(Kind.REFUSED, reason=str(error))
                await control.ended(within_s=GOODBYE_WITHIN_S)

    @property
    def as_json(self) -> bool:
        """Whether figures are printed as JSON."""
        return self._as_json

    @property
    def interval_s(self) -> float:
        """Length of an interval."""
        return self._interval_s

    def write(self, text: str) -> None:
        """Print a test's figures."""
        self._write(text)


class Output:
    """What a server prints of a test, and keeps if the client wants it."""

    def __init__(self, write: Write, *, as_json: bool, keep: bool) -> None:
        self._write = write
        self._as_json = as_json
        self._kept: list[str] = []
        self._keep = keep
        self._document: Fields | None = None
        self._text: TextReport | None = None

    def _line(self, line: str) -> None:
        self._write(line + "\n")
        if self._keep:
            self._kept.append(line + "\n")

    def started(self, start: Start) -> None:
        """Print the header."""
        if not self._as_json:
            self._text = TextReport(self._line)
            self._text.started(start)

    def interval(self, interval: Interval) -> None:
        """Print an interval."""
        if self._text is not None:
            self._text.interval(interval)

    def ended(self, report: Report) -> None:
        """Print the summary."""
        if self._text is not None:
            self._text.ended(report)
        else:
            self._document = document(report)
            self._write(describe(self._document) + "\n")

    @property
    def kept(self) -> str | Fields | None:
        """What the client wants of it."""
        if not self._keep:
            return None
        return sendable_output(self._document if self._document is not None else "".join(self._kept))


class Test:
    """One test, at the server."""

    def __init__(self, session: Session, *, control: Control, peer: Peer, endpoint: Endpoint) -> None:
        self._session, self._control, self._peer, self._endpoint = session, control, peer, endpoint

    async def run(self, server: Server) -> None:
        """Serve it to its end. Raises SrdError, and what lack of resources raises; the client was told of it."""
        heard = asyncio.ensure_future(self._control.receive(Kind.END))
        async with AsyncExitStack() as stack:
            stack.callback(_forget, heard)
            try:
                await self._run(server, heard=heard, stack=stack)
            except Exception as error:  # before anything is closed: the client is to hear the reason first
                await self._tell(error, heard=heard)
                raise

    async def _run(self, server: Server, *, heard: asyncio.Future[tuple[Kind, Fields]], stack: AsyncExitStack) -> None:
        parameters = self._session.parameters
        failure = Failure()
        stack.callback(failure.close)
        source = Source(parameters.block_bytes)
        stack.callback(source.close)
        connections = await self._connections(heard, stack)
        opening = Opening(
            parameters,
            is_client=False,
            source=source,
            local=(local_host(self._peer.address[0]), self._endpoint.address[1]),
            fail=failure.set,
        )
        output = Output(server.write, as_json=server.as_json, keep=parameters.server_output)
        running = Running(
            opening.streams(connections),
            parameters=parameters,
            interval_s=server.interval_s,
            on_interval=output.interval,
        )
        stack.push_async_callback(running.close)
        start = self._start(running, connections)
        output.started(start)
        await self._control.send(Kind.START)
        running.start()
        fields = await first(
            _heard(heard), failure.wait(), running.failed(), self._finished(running), self._overdue(running)
        )
        sent_there = counts_untrusted(fields, streams=parameters.count)
        sent = await first(running.stop(), failure.wait())
        await first(running.arrived(sent_there), failure.wait())
        own = Results(running.meter.totals(), running.meter.load(), congestion_of(connections))
        output.ended(Report(start, running.meter.intervals, own, None))
        results = Results(own.totals, own.load, own.congestion, output.kept)
        await self._control.send(Kind.RESULTS, sent=sent, **encode(results))
        await self._control.ended(within_s=GOODBYE_WITHIN_S)

    async def _tell(self, error: Exception, *, heard: asyncio.Future[tuple[Kind, Fields]]) -> None:
        """Tell the client why, and wait until it has left."""
        with suppress(PerfError):
            await self._control.send(Kind.FAILED, reason=str(error))
        await asyncio.wait([heard], timeout=GOODBYE_WITHIN_S)
        if heard.done() and heard.exception() is None:  # it has ended its test meanwhile
            await self._control.ended(within_s=GOODBYE_WITHIN_S)

    async def _connections(self, heard: asyncio.Future[tuple[Kind, Fields]], stack: AsyncExitStack) -> Connections:
        """Return what carries the streams. Raises PerfError when they are not opened in time."""
        session = self._session
        acceptor = None
        if is_tcp(session.parameters):
            acceptor = Acceptor(session.parameters, address=self._endpoint.address, cookie=session.cookie)
            stack.callback(acceptor.close)
            acceptor.start()
        await self._control.send(Kind.READY, cookie=session.cookie)
        try:
            async with asyncio.timeout(JOIN_WITHIN_S):
                joined = acceptor.sockets() if acceptor is not None else session.peers()
                connections: Connections | Fields = await first(joined, _heard(heard))
        except TimeoutError:
            raise PerfError(f"not all streams were opened within {JOIN_WITHIN_S:g} s") from None
        if isinstance(connections, dict):
            raise PerfError("the client has ended the test before its start")
        for connection in connections:
            if isinstance(connection, socket.socket):
                stack.callback(connection.close)
        return connections

    def _start(self, running: Running, connections: Connections) -> Start:
        mss, sent, received = buffers_of(connections)
        return Start(
            self._session.parameters,
            is_client=False,
            other=self._peer.address,
            cookie=self._session.cookie,
            at=time.time(),
            ends=[stream.ends for stream in running.streams],
            mss_bytes=mss,
            sndbuf_bytes=sent,
            rcvbuf_bytes=received,
        )

    async def _finished(self, running: Running) -> None:
        """Tell the client when all was sent that this end was to send (-n)."""
        if self._session.parameters.size_bytes and any(stream.sends for stream in running.streams):
            await running.over()
            await self._control.send(Kind.FINISHED)
        await asyncio.get_running_loop().create_future()

    async def _overdue(self, running: Running) -> None:
        """Raise PerfError when the client does not end its test, or nothing moves any more."""
        parameters = self._session.parameters
        give_up_at = time.monotonic() + parameters.omit_s + parameters.seconds + GRACE_S
        moved_bytes = 0
        while time.monotonic() < give_up_at:
            await asyncio.sleep(_WATCH_S)
            if (now_bytes := sum(stream.size_bytes for stream in running.streams)) != moved_bytes:
                moved_bytes = now_bytes
                if not parameters.seconds:
                    give_up_at = time.monotonic() + GRACE_S
        raise PerfError("the client did not end the test in time")


async def _heard(heard: asyncio.Future[tuple[Kind, Fields]]) -> Fields:
    _, fields = await asyncio.shield(heard)
    return fields


def _forget(heard: asyncio.Future[tuple[Kind, Fields]]) -> None:
    if not heard.cancel() and not heard.cancelled():
        heard.exception()
