"""Ping-pong under load: 64 B and its answer, one at a time, beside a second peer of the same two endpoints.

The loops are those of `srd perf latency` (srd.perf.sweep), which measures the same without load. The second peer has
`BULK_MESSAGES` of 1 MiB outstanding.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import asdict
from typing import Final

from devmem.region import Region
from netns.base.output import emit
from scripts.benches.veth.worker.bulk import MESSAGE_BYTES
from srd import Endpoint, EndpointConfig, Peer, PeerError, Plain
from srd.perf.running import FirstFailure
from srd.perf.sweep.measures import RoundTrips
from srd.perf.sweep.plan import Operation, Sweep
from srd.perf.sweep.roles import SweepResponder

CONFIG: Final = EndpointConfig(security=Plain())
SIZE_BYTES: Final = 64
ALONE_FRACTION: Final = 0.25
"""How long the bulk flow is measured alone before the ping-pong begins, over the time of the ping-pong."""
BULK_MESSAGES: Final = 16
BULK: Final = 1
"""Immediate of a bulk peer's messages, which get no answer."""


async def receive(*, host: str) -> int:
    """Answer the messages of the first peer, until it has closed; release all others'."""
    failure = FirstFailure()
    async with await Endpoint.listen(host, port=0, config=CONFIG) as endpoint:
        emit("listening", port=endpoint.address[1])
        peer = await endpoint.accept()
        responder = SweepResponder(peer, size_bytes=SIZE_BYTES, verify=True, fail=failure.set)
        others = asyncio.ensure_future(_release_others(endpoint))
        with contextlib.suppress(PeerError):  # it has closed
            await failure.wait()
        others.cancel()
        emit("received", dropped=endpoint.dropped_packets)
        await endpoint.close()  # before the memory, which answers may still refer to
        await responder.close()
    return 0


async def _release_others(endpoint: Endpoint) -> None:
    async with asyncio.TaskGroup() as group:
        while True:
            group.create_task(_release(await endpoint.accept()))


async def _release(peer: Peer) -> None:
    with contextlib.suppress(PeerError):
        while True:
            (await peer.recv()).release()


async def send(*, host: str, port: int, seconds: float) -> int:
    sweep = Sweep(Operation.LATENCY, sizes=(SIZE_BYTES,), iterations=0, seconds=seconds, verify=True)
    async with await Endpoint.open(towards=host, config=CONFIG) as endpoint:
        peer = await endpoint.connect(host, port=port)
        bulk = BackgroundFlow(await endpoint.connect(host, port=port))
        await asyncio.sleep(ALONE_FRACTION * seconds)
        alone_gbps = bulk.lap_gbps()
        measure = RoundTrips(sweep, peer, size_bytes=SIZE_BYTES)
        row = await measure.measure()
        beside_gbps = bulk.lap_gbps()
        bulk.stop()
        await peer.close()
        dropped = endpoint.dropped_packets
    measure.close()
    emit("measured", **asdict(row), bulk_alone_gbps=alone_gbps, bulk_gbps=beside_gbps, dropped=dropped)
    return 0


class BackgroundFlow:
    """A background flow with a constant number of outstanding long messages."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._region = Region(MESSAGE_BYTES, name="bench-bulk")
        self._started, self._bytes, self._stopped = time.perf_counter(), 0, False
        for _ in range(BULK_MESSAGES):
            self._post()

    def lap_gbps(self) -> float:
        """Return acknowledged data over the time since the flow began, or since the last call."""
        now = time.perf_counter()
        gbps = 8 * self._bytes / (now - self._started) / 1e9
        self._started, self._bytes = now, 0
        return gbps

    def stop(self) -> None:
        self._stopped = True

    def _post(self) -> None:
        if not self._stopped:
            future = self._peer.post_send(self._region, offset=0, length=MESSAGE_BYTES, immediate=BULK)
            future.add_done_callback(self._done)

    def _done(self, _future: object) -> None:
        self._bytes += MESSAGE_BYTES
        self._post()
