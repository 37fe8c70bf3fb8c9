"""Ping-pong: a message and an answer of the same length, one at a time; SRD, and kernel TCP with TCP_NODELAY.

The loops are those of `srd perf latency` (srd.perf.sweep), which compare all of each answer at the client and a part of
each message at the server. Under load, SRD has a second peer between the same two endpoints, with `BULK_MESSAGES` of
1 MiB outstanding; TCP has a concurrent iperf3 (see cases/latency.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Sequence
from typing import Final

import numpy as np

from devmem.region import Region
from scripts.benches.veth.worker.bulk import MESSAGE_BYTES, PSK
from scripts.harness.events import emit
from srd import Endpoint, EndpointConfig, Peer, PeerError, Plain
from srd.perf.parameters import Protocol
from srd.perf.payload import Shifted
from srd.perf.running import Failure
from srd.perf.sweep.kernel import answer, ping
from srd.perf.sweep.measures import RoundTrips
from srd.perf.sweep.plan import Operation, Sweep
from srd.perf.sweep.roles import PartCheck, Responder
from srd.perf.tcp_socket import CUBIC, make_socket

ALONE_FRACTION: Final = 0.25
"""How long the bulk flow is measured alone before the ping-pong begins, over the time of the ping-pong."""
BULK_MESSAGES: Final = 16
BULK: Final = 1
"""Immediate of a bulk peer's messages, which get no answer."""


def percentiles(times_ns: Sequence[float]) -> dict[str, float]:
    """Return the figures of one size, in microseconds."""
    found = np.percentile(np.array(times_ns) / 1e3, (50, 99, 99.9))
    return dict(zip(("p50_us", "p99_us", "p999_us"), map(float, found), strict=True))


def name_of(size: int) -> str:
    """Return a size in bytes as the figures' names have it: 64b, 4kib, 1mib."""
    for shift, unit in ((20, "mib"), (10, "kib")):
        if size and size % (1 << shift) == 0:
            return f"{size >> shift}{unit}"
    return f"{size}b"


def _sweep(sizes: Sequence[int], *, seconds: float, tcp: bool = False) -> Sweep:
    """Return what is measured: each size for its share of the time."""
    protocol, congestion = (Protocol.TCP, CUBIC) if tcp else (Protocol.SRD, "")
    share_s = seconds / len(sizes)
    return Sweep(Operation.LATENCY, protocol, congestion, sizes, iterations=0, seconds=share_s, verify=True)


# -- ours -------------------------------------------------------------------------------------------------------------


async def receive(host: str, *, largest: int, busy_poll: bool, plain: bool) -> int:
    """Answer the messages of the first peer, of at most `largest` bytes, until it has closed; release all others'."""
    config, failure = EndpointConfig(busy_poll=busy_poll, security=Plain() if plain else PSK), Failure()
    async with await Endpoint.listen(host, port=0, config=config) as endpoint:
        emit("listening", port=endpoint.address[1])
        peer = await endpoint.accept()
        responder = Responder(peer, size_bytes=largest, verify=True, fail=failure.set)
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


async def send(
    host: str, *, port: int, sizes: Sequence[int], seconds: float, busy_poll: bool, loaded: bool, plain: bool
) -> int:
    """Measure each size for its share of `seconds`, idle or beside a bulk flow."""
    config, figures = EndpointConfig(busy_poll=busy_poll, security=Plain() if plain else PSK), {}
    sweep, source = _sweep(sizes, seconds=seconds), Shifted(max(sizes))
    alone_gbps = beside_gbps = 0.0
    async with await Endpoint.open(towards=host, config=config) as endpoint:
        peer = await endpoint.connect(host, port=port)
        bulk = Bulk(await endpoint.connect(host, port=port)) if loaded else None
        if bulk is not None:
            await asyncio.sleep(ALONE_FRACTION * seconds)
            alone_gbps = bulk.lap_gbps()
        for size in sizes:
            measure = RoundTrips(sweep, peer, size_bytes=size, source=source)
            figures[name_of(size)] = percentiles(await measure.times_ns())
        if bulk is not None:
            beside_gbps = bulk.lap_gbps()
            bulk.stop()
        await peer.close()
        dropped = endpoint.dropped_packets
    source.close()
    emit("measured", figures=figures, bulk_alone_gbps=alone_gbps, bulk_gbps=beside_gbps, dropped=dropped)
    return 0


class Bulk:
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
        """Stop posting."""
        self._stopped = True

    def _post(self) -> None:
        if not self._stopped:
            future = self._peer.post_send(self._region, offset=0, length=MESSAGE_BYTES, immediate=BULK)
            future.add_done_callback(self._done)

    def _done(self, _future: object) -> None:
        self._bytes += MESSAGE_BYTES
        self._post()


# -- kernel TCP -------------------------------------------------------------------------------------------------------


def tcp_receive(host: str, *, sizes: Sequence[int]) -> None:
    """Answer messages: of each size in turn, each on a connection of its own."""
    with make_socket(algorithm=CUBIC, mptcp=False) as listener:
        listener.bind((host, 0))
        listener.listen()
        source = Shifted(max(sizes))
        emit("listening", port=listener.getsockname()[1])
        for size in sizes:
            connection, _ = listener.accept()
            with connection:
                for _ in answer(connection, source, size_bytes=size, check=PartCheck(source)):
                    pass
        source.close()
    emit("received")


def tcp_send(host: str, *, port: int, sizes: Sequence[int], seconds: float) -> None:
    """Measure each size for its share of `seconds`."""
    figures: dict[str, dict[str, float]] = {}
    sweep, source = _sweep(sizes, seconds=seconds, tcp=True), Shifted(max(sizes))
    for size in sizes:
        with make_socket(algorithm=CUBIC, mptcp=False) as sock:
            sock.connect((host, port))
            times_ns, _ = ping(sock, source, size_bytes=size, sweep=sweep)
            figures[name_of(size)] = percentiles(times_ns)
    source.close()
    emit("measured", figures=figures)
