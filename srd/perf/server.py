"""A server: serves one test at a time, and refuses others with the reason.

Whatever a client sends, or fails to send, ends its own test at most. What a client can make a server keep is bounded:
peers that have not said what they are (MAX_NEWCOMERS, for HELLO_WITHIN_S), the streams of one test, their intervals.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack, suppress
from dataclasses import asdict, replace
from typing import Final

from netns.base.addresses import host_port_text
from netns.base.standard_streams import is_output_error
from netns.base.tasks import Tasks, first
from srd.endpoint import Endpoint
from srd.errors import SrdError
from srd.peer import Peer
from srd.perf.control import VERSION, Control, ControlKind, Fields, counts_untrusted
from srd.perf.errors import PerfError
from srd.perf.iperf_json import document
from srd.perf.meter import Interval
from srd.perf.opening import StreamOpening, local_host, own_results
from srd.perf.parameters import Parameters, parameters_untrusted
from srd.perf.payload import PayloadSource
from srd.perf.results import PerfReport, Start, describe, sendable_output
from srd.perf.running import FirstFailure, RunningStreams
from srd.perf.session import GOODBYE_WITHIN_S, GRACE_S, WATCH_S, Printer, Test, TestSession, Write, heard_fields
from srd.perf.stream import shown
from srd.perf.sweep.plan import Sweep, sweep_untrusted
from srd.perf.sweep.server import SweepTest
from srd.perf.text import TextReport

HELLO_WITHIN_S: Final = 5.0
"""How long a peer may take to say what it is."""
MAX_NEWCOMERS: Final = 256
"""Peers that have not said it; more are closed at once."""
INTERVAL_S: Final = 1.0
"""iperf3's default."""


class PerfServer:
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
        self._printer, self._note = Printer(write, as_json, interval_s), note
        self._session: TestSession | None = None
        self._outcomes: asyncio.Queue[int | BaseException] = asyncio.Queue()  # per test, or a fatal error
        self._tasks = Tasks(self._outcomes.put_nowait)  # one accepts, the others have a peer each

    async def serve(self, *, one_off: bool = False) -> int:
        """Serve until cancelled; with `one_off` until one test has ended. Return 0 if it has succeeded, else 1.

        Raises SrdError when the endpoint fails, and whatever `write` raises.
        """
        self._tasks.start(self._accept())
        try:
            while True:
                outcome = await self._outcomes.get()
                if isinstance(outcome, BaseException):
                    raise outcome
                if one_off:
                    return outcome
        finally:
            await self._tasks.end()

    async def _accept(self) -> None:
        while True:
            self._tasks.start(self._welcome(await self._endpoint.accept()))

    async def _welcome(self, peer: Peer) -> None:
        """Find out what a peer is for; serve its test, or give it to the running one."""
        belongs_to_test = False
        try:
            if len(self._tasks) > MAX_NEWCOMERS:
                return
            async with asyncio.timeout(HELLO_WITHIN_S):
                control = Control(*await peer.accept_stream())
                kind, fields = await control.receive(ControlKind.TEST, ControlKind.JOIN)
            if kind is ControlKind.TEST:
                await self._test(fields, control=control, peer=peer)
            elif self._session is not None:
                self._session.join_untrusted(fields, peer)
                belongs_to_test = True
                control.close()
        except TimeoutError:
            pass  # it said nothing
        except Exception as error:
            if is_output_error(error):
                raise
            what = "" if isinstance(error, SrdError) else f"{type(error).__name__}: "
            text = str(error).removeprefix(f"{host_port_text(*peer.address)}: ")  # which an error of the peer has
            self._note(f"{host_port_text(*shown(peer.address))}: {what}{text}")
        finally:
            if not belongs_to_test:
                await peer.close()

    async def _test(self, fields: Fields, *, control: Control, peer: Peer) -> None:
        """Serve a test, or refuse it."""
        try:
            wanted = self._admitted_untrusted(fields)
        except PerfError as error:
            await self._refuse(control, error)
            return
        session = self._session = TestSession(wanted)
        test: Test
        if isinstance(wanted, Sweep):
            test = SweepTest(session, wanted, control=control, peer=peer, endpoint=self._endpoint)
        else:
            test = StreamTest(session, wanted, control=control, peer=peer, endpoint=self._endpoint)
        status = 1
        try:
            await test.run(self._printer)
            status = 0
        finally:
            self._session = None
            await session.close()
            self._outcomes.put_nowait(status)

    def _admitted_untrusted(self, fields: Fields) -> Parameters | Sweep:
        """Return what is to be tested. Raises PerfError with the reason why it is not."""
        if fields.get("version") != VERSION:
            raise PerfError("client and server are of different versions; update one")
        wanted = (
            sweep_untrusted(fields["sweep"]) if "sweep" in fields else parameters_untrusted(fields.get("parameters"))
        )
        if self._session is not None:
            raise PerfError("the server is busy running a test; try again later")
        return wanted

    async def _refuse(self, control: Control, error: PerfError) -> None:
        """Tell a client why, and wait until it has heard."""
        with suppress(PerfError, TimeoutError):
            async with asyncio.timeout(GOODBYE_WITHIN_S):
                await control.send(ControlKind.REFUSED, reason=str(error))
                await control.ended(within_s=GOODBYE_WITHIN_S)


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

    def ended(self, report: PerfReport) -> None:
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


class StreamTest(Test):
    """Streams of one test, as those of iperf3."""

    asks = ControlKind.END

    def __init__(
        self, session: TestSession, parameters: Parameters, *, control: Control, peer: Peer, endpoint: Endpoint
    ) -> None:
        super().__init__(session, control=control, peer=peer, endpoint=endpoint)
        self._parameters = parameters

    async def _run(
        self, printer: Printer, *, heard: asyncio.Future[tuple[ControlKind, Fields]], stack: AsyncExitStack
    ) -> None:
        parameters = self._parameters
        failure = FirstFailure()
        stack.callback(failure.close)
        source = PayloadSource(parameters.block_bytes)
        stack.callback(source.close)
        connections = await self._open(heard, stack)
        opening = StreamOpening(
            parameters,
            is_client=False,
            source=source,
            local=(local_host(self._peer.address[0]), self._endpoint.address[1]),
            fail=failure.set,
        )
        output = Output(printer.write, as_json=printer.as_json, keep=parameters.server_output)
        streams = opening.streams(connections)
        running = RunningStreams(
            streams,
            parameters=parameters,
            interval_s=printer.interval_s,
            on_interval=output.interval,
        )
        stack.push_async_callback(running.close)
        other = shown(self._peer.address)
        start = opening.start(streams, connections, other=other, cookie=self._session.cookie)
        output.started(start)
        await self._control.send(ControlKind.START)
        running.start()
        fields = await first(
            heard_fields(heard), failure.wait(), running.failed(), self._finished(running), self._overdue(running)
        )
        sent_there = counts_untrusted(fields, streams=parameters.count)
        sent = await first(running.stop(), failure.wait())
        await first(running.arrived(sent_there), failure.wait())
        own = own_results(running.meter, connections)
        output.ended(PerfReport(start, running.meter.intervals, own, None))
        await self._control.send(ControlKind.RESULTS, sent=sent, **asdict(replace(own, output=output.kept)))
        await self._control.ended(within_s=GOODBYE_WITHIN_S)

    async def _finished(self, running: RunningStreams) -> None:
        """Tell the client when all was sent that this end was to send (-n)."""
        if self._parameters.size_bytes and any(stream.sends for stream in running.streams):
            await running.over()
            await self._control.send(ControlKind.FINISHED)
        await asyncio.get_running_loop().create_future()

    async def _overdue(self, running: RunningStreams) -> None:
        """Raise PerfError when the client does not end its test, or nothing moves any more."""
        parameters = self._parameters
        give_up_at = time.monotonic() + parameters.omit_s + parameters.seconds + GRACE_S
        moved_bytes = 0
        while time.monotonic() < give_up_at:
            await asyncio.sleep(WATCH_S)
            if (now_bytes := sum(stream.size_bytes for stream in running.streams)) != moved_bytes:
                moved_bytes = now_bytes
                if not parameters.seconds:
                    give_up_at = time.monotonic() + GRACE_S
        raise PerfError("the client did not end the test in time")
