"""Drives a carrier by the lines on stdin; see the package's docstring."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from dataclasses import dataclass
from typing import Any, Final

from netns.base.output import emit
from netns.base.tasks import first
from srd.compare.worker.arrivals import Arrivals, BlockArrivals, Copy, FileArrivals
from srd.compare.worker.carrier import FlowCarrier
from srd.compare.worker.plan import BLOCK_BYTES, Plan, PlannedFlow
from srd.compare.worker.srd_carrier import SrdCarrier
from srd.compare.worker.srd_files import SrdFiles
from srd.compare.worker.tcp_carrier import TcpCarrier
from srd.errors import SrdError
from srd.perf.errors import UnavailableError
from srd.perf.payload import PayloadSource
from srd.perf.tcp_socket import BBR, CUBIC

PROGRESS_S: Final = 0.02
_LINE_BYTES: Final = 64 << 20  # a plan
SRD, MPTCP = "srd", "mptcp"
TRANSPORTS: Final = (SRD, CUBIC, BBR, MPTCP)


@dataclass(slots=True)
class Worker:
    """One host's part of a workload."""

    transport: str
    address: str
    """Where it receives."""
    bind: str | None
    """Local address of TCP's connections."""
    copy: Copy | None = None

    async def run(self) -> int:
        """Return the exit status."""
        source = PayloadSource(BLOCK_BYTES)
        arrivals = BlockArrivals(source) if self.copy is None else FileArrivals(self.copy)
        carrier = self._carrier(arrivals, source)
        lines = await _stdin()
        try:
            port = await carrier.listen(self.address)
            emit("listening", port=port)
            await first(_work(carrier, arrivals, lines), carrier.failed())
        except (SrdError, UnavailableError, OSError) as error:
            emit("failed", reason=str(error))
            return 1
        finally:
            await carrier.close()
        return 0

    def _carrier(self, arrivals: BlockArrivals | FileArrivals, source: PayloadSource) -> FlowCarrier:
        if self.transport != SRD:
            mptcp = self.transport == MPTCP
            algorithm = CUBIC if mptcp else self.transport
            return TcpCarrier(arrivals, source, copy=self.copy, algorithm=algorithm, mptcp=mptcp, bind=self.bind)
        if self.copy is not None and isinstance(arrivals, FileArrivals):
            return SrdFiles(arrivals, self.copy)
        return SrdCarrier(arrivals, source)


async def _work(carrier: FlowCarrier, arrivals: Arrivals, lines: asyncio.StreamReader) -> None:
    """Do what stdin says, account for it, and wait for its end."""
    if "flows" not in (fields := await _heard(lines)):
        return
    plan = Plan.parse(fields)
    arrivals.expect(plan.arriving)
    await carrier.connect(plan.targets)
    emit("ready")
    if "start_at" not in (fields := await _heard(lines)):
        return
    start_at, cpu_before_s = float(fields["start_at"]), time.process_time()
    running = [asyncio.ensure_future(_send(carrier, plan, start_at=start_at))]
    running.append(asyncio.ensure_future(_progress(arrivals, start_at=start_at)))
    try:
        await first(_heard(lines), _errors(running))
    finally:
        for task in running:
            task.cancel()
    stall_s, cpu_s = arrivals.longest_stall_s(), time.process_time() - cpu_before_s
    account = carrier.account()
    emit(
        "account",
        sent=account.sent,
        resent=account.resent,
        longest_stall_ms=round(1000 * stall_s, 3) if plan.arriving else None,
        subflows=account.subflows,
        cpu_s=round(cpu_s, 4),
    )
    await lines.read()  # the others account for connections that end with this one


async def _heard(lines: asyncio.StreamReader) -> dict[str, Any]:
    """Return the next line; nothing at the end."""
    line = await lines.readline()
    fields: dict[str, Any] = json.loads(line) if line else {}
    return fields


async def _errors(running: list[asyncio.Task[None]]) -> None:
    """Raise the first error of any; return never."""
    done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_EXCEPTION)
    for task in done:
        task.result()
    await asyncio.get_running_loop().create_future()


async def _send(carrier: FlowCarrier, plan: Plan, *, start_at: float) -> None:
    """Send all flows, each at its time."""

    async def one(flow: PlannedFlow) -> None:
        await asyncio.sleep(max(0.0, start_at + flow.at_s - time.monotonic()))
        began_at = time.monotonic()
        await carrier.send(flow)
        emit("flow", number=flow.number, seconds=round(time.monotonic() - began_at, 6))

    flows = [asyncio.ensure_future(one(flow)) for flow in plan.flows]
    try:
        await asyncio.gather(*flows)
    finally:
        for each in flows:
            each.cancel()
    emit("sent")


async def _progress(arrivals: Arrivals, *, start_at: float) -> None:
    await asyncio.sleep(max(0.0, start_at - time.monotonic()))
    arrivals.start()
    said_bytes = -1
    while True:
        if arrivals.size_bytes != said_bytes:
            said_bytes = arrivals.size_bytes
            emit("progress", seconds=round(time.monotonic() - start_at, 4), bytes=said_bytes)
        await asyncio.sleep(PROGRESS_S)


async def _stdin() -> asyncio.StreamReader:
    reader = asyncio.StreamReader(limit=_LINE_BYTES)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    return reader
