"""A server and clients on loopback, in this process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

import pytest

from srd.endpoint import Endpoint
from srd.perf.client import PerfClient, ServerTarget
from srd.perf.meter import Interval
from srd.perf.opening import listen
from srd.perf.parameters import Parameters, Protocol
from srd.perf.results import PerfReport, Start
from srd.perf.server import PerfServer
from srd.perf.sweep.client import SizeRow, run_sweep
from srd.perf.sweep.plan import Sweep
from tests.patience import PATIENCE_S
from tests.srd.loopback import PLAIN

HOST = "127.0.0.1"
SRD_AND_TCP = [Protocol.SRD, pytest.param(Protocol.TCP, marks=pytest.mark.root)]
"""A kernel may allow only root to choose cubic."""


@dataclass
class Seen:
    """A watch that keeps what it was told."""

    starts: list[Start] = field(default_factory=list)
    intervals: list[Interval] = field(default_factory=list)
    reports: list[PerfReport] = field(default_factory=list)
    began: asyncio.Event = field(default_factory=asyncio.Event)

    def started(self, start: Start) -> None:
        self.starts.append(start)
        self.began.set()

    def interval(self, interval: Interval) -> None:
        self.intervals.append(interval)

    def interrupted(self, report: PerfReport) -> None:
        self.reports.append(report)


@dataclass
class Served:
    """A server that runs."""

    endpoint: Endpoint
    serving: asyncio.Task[int]
    output: list[str]
    notes: list[str]

    @property
    def port(self) -> int:
        return self.endpoint.address[1]

    def client(self, endpoint: Endpoint) -> PerfClient:
        target = ServerTarget(HOST, self.port)
        return PerfClient(endpoint, target, connect_timeout_s=PATIENCE_S, on_first_contact=lambda _: None)

    async def run(self, parameters: Parameters, *, interval_s: float = 0.0, seen: Seen | None = None) -> PerfReport:
        """Run one test, with an endpoint of its own."""
        async with asyncio.timeout(PATIENCE_S), await Endpoint.open(towards=HOST, config=PLAIN) as endpoint:
            return await self.client(endpoint).run(parameters, interval_s=interval_s, watch=seen or Seen())

    async def sweep(self, sweep: Sweep) -> list[SizeRow]:
        """Run one sweep, with an endpoint of its own."""
        rows = list[SizeRow]()
        async with asyncio.timeout(PATIENCE_S), await Endpoint.open(towards=HOST, config=PLAIN) as endpoint:
            await run_sweep(self.client(endpoint), sweep, on_start=lambda _: None, on_row=rows.append)
        return rows


@asynccontextmanager
async def served(*, as_json: bool = False, one_off: bool = False) -> AsyncIterator[Served]:
    output, notes = list[str](), list[str]()
    async with await listen(HOST, port=0, config=PLAIN) as endpoint:
        server = PerfServer(endpoint, write=output.append, note=notes.append, as_json=as_json)
        serving = asyncio.ensure_future(server.serve(one_off=one_off))
        try:
            yield Served(endpoint, serving, output, notes)
            if not one_off:
                assert not serving.done(), "the server has ended"
        finally:
            serving.cancel()
            with suppress(asyncio.CancelledError):
                await serving
