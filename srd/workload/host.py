"""Drives a carrier by the lines on stdin; see the package's docstring."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, Final

from netns.base.output import emit
from srd.build import BUILD
from srd.errors import SrdError
from srd.perf.errors import UnavailableError
from srd.perf.iperf_json import program
from srd.perf.payload import Source
from srd.perf.running import first
from srd.perf.tcp_socket import BBR, CUBIC, why_unavailable
from srd.workload.arrivals import Arrivals, Carrier
from srd.workload.plan import BLOCK_BYTES, Flow, Plan
from srd.workload.srd_carrier import SrdCarrier
from srd.workload.tcp_carrier import TcpCarrier

PROGRESS_S: Final = 0.02
_LINE_BYTES: Final = 64 << 20  # a plan
SRD, MPTCP = "srd", "mptcp"
TRANSPORTS: Final = (SRD, CUBIC, BBR, MPTCP)


def about() -> dict[str, Any]:
    """Return versions and build, and for each transport that this machine lacks the reason in one line."""
    reasons = {algorithm: why_unavailable(algorithm=algorithm, mptcp=False) for algorithm in (CUBIC, BBR)}
    reasons[MPTCP] = why_unavailable(algorithm=CUBIC, mptcp=True)
    build = f"{program().removeprefix('open-srd').strip()} {BUILD}".strip()
    return {
        "environment": {"open-srd": build, "numpy": version("numpy"), "uvloop": version("uvloop")},
        "unavailable": {transport: reason for transport, reason in reasons.items() if reason is not None},
    }


@dataclass(slots=True)
class Host:
    """One host's part of a workload."""

    transport: str
    address: str
    """Where it receives."""
    bind: str | None
    """Local address of TCP's connections."""

    async def run(self) -> int:
        """Return the exit status."""
        source = Source(BLOCK_BYTES)
        arrivals = Arrivals(source)
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

    def _carrier(self, arrivals: Arrivals, source: Source) -> Carrier:
        if self.transport == SRD:
            return SrdCarrier(arrivals, source)
        mptcp = self.transport == MPTCP
        algorithm = CUBIC if mptcp else self.transport
        return TcpCarrier(arrivals, source, algorithm=algorithm, mptcp=mptcp, bind=self.bind)


async def _work(carrier: Carrier, arrivals: Arrivals, lines: asyncio.StreamReader) -> None:
    """Do what stdin says; after its end, account for it."""
    if not (line := await lines.readline()):
        return
    plan = Plan.parse(line.decode())
    arrivals.expect(plan.arriving)
    await carrier.connect(plan.targets)
    emit("ready")
    if not (line := await lines.readline()):
        return
    start_at = float(json.loads(line)["start_at"])
    running = [asyncio.ensure_future(_send(carrier, plan, start_at=start_at))]
    running.append(asyncio.ensure_future(_progress(arrivals, start_at=start_at)))
    try:
        await first(lines.read(), _errors(running))
    finally:
        for task in running:
            task.cancel()
    arrivals.stop()
    account = carrier.account()
    emit(
        "account",
        sent=account.sent,
        resent=account.resent,
        longest_stall_ms=round(1000 * arrivals.longest_stall_s, 3) if plan.arriving else None,
        subflows=account.subflows,
    )


async def _errors(running: list[asyncio.Task[None]]) -> None:
    """Raise the first error of any; return never."""
    done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_EXCEPTION)
    for task in done:
        task.result()
    await asyncio.get_running_loop().create_future()


async def _send(carrier: Carrier, plan: Plan, *, start_at: float) -> None:
    """Send all flows, each at its time."""

    async def one(flow: Flow) -> None:
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
