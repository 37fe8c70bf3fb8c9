"""Ping-pong: a message and a reply of the same length, one at a time; SRD, and kernel TCP with TCP_NODELAY.

Both ends wait for the whole message before they reply, each from a buffer of its own, as ping-pong tools do. The client
compares every reply between two measurements; the server compares a part of each message, another each time, once its
reply has been sent, which is while the client compares. TCP's ends are plain blocking sockets, the fastest way in
Python. Under load, SRD has a second peer between the same two endpoints, with `BULK_MESSAGES` of 1 MiB outstanding; TCP
has a concurrent iperf3 (see cases/latency.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Final

import numpy as np

from devmem.region import Region
from scripts.benches.veth.worker.bulk import MESSAGE_BYTES, PSK
from scripts.harness.errors import BenchError
from scripts.harness.events import emit
from srd import Endpoint, EndpointConfig, Message, Peer, PeerError, Plain, Status
from srd.perf.tcp_socket import CUBIC, make_socket

WARM_UP: Final = 200
"""Round trips of each size that do not count, unless they take longer than `WARM_UP_FRACTION` of the time."""
WARM_UP_FRACTION: Final = 0.25
ALONE_FRACTION: Final = 0.25
"""How long the bulk flow is measured alone before the ping-pong begins, over the time of the ping-pong."""
CHECKED_BYTES: Final = 64 << 10
"""Bytes of a message that the server compares: it takes less time than the client needs for the whole reply."""
BULK_MESSAGES: Final = 16
SEED: Final = 1
BULK: Final = 1
"""Immediate of a bulk peer's first message: its messages get no reply."""


def percentiles(samples_s: list[float]) -> dict[str, float]:
    """Return the figures of one size, in microseconds."""
    found = np.percentile(np.array(samples_s) * 1e6, (50, 99, 99.9))
    return dict(zip(("p50_us", "p99_us", "p999_us"), map(float, found), strict=True))


def name_of(size: int) -> str:
    """Return a size in bytes as the figures' names have it: 64b, 4kib, 1mib."""
    for shift, unit in ((20, "mib"), (10, "kib")):
        if size and size % (1 << shift) == 0:
            return f"{size >> shift}{unit}"
    return f"{size}b"


def pattern(size: int) -> bytes:
    """Return the contents of a message of this size, without a period, so that misplaced data is detected.

    Those of a shorter message are the beginning of those of a longer one.
    """
    return np.random.default_rng(SEED).bytes(size)


class Checker:
    """Compares a part of each message with the expected contents, another part each time."""

    def __init__(self, expected: bytes) -> None:
        self.expected = expected
        self.intact = True
        self._count = 0

    def check(self, views: Iterable[memoryview], *, length: int) -> None:
        """Compare a part of what `views` have, `length` bytes in all."""
        start = self._count * CHECKED_BYTES % length
        self._count += 1
        at = 0
        for view in views:
            first, end = max(start - at, 0), min(start + CHECKED_BYTES - at, len(view))
            if first < end and bytes(view[first:end]) != self.expected[at + first : at + end]:
                self.intact = False
            at += len(view)
        self.intact = self.intact and at == length


# -- ours -------------------------------------------------------------------------------------------------------------


async def receive(host: str, *, largest: int, busy_poll: bool, plain: bool) -> int:
    """Reply to messages of all peers, of at most `largest` bytes, until the first one has closed."""
    config = EndpointConfig(busy_poll=busy_poll, security=Plain() if plain else PSK)
    checker = Checker(pattern(largest))
    async with await Endpoint.listen(host, port=0, config=config) as endpoint:
        emit("listening", port=endpoint.address[1])
        with Region(largest, name="bench-reply") as region:
            region.array[:largest] = np.frombuffer(checker.expected, np.uint8)
            peer = await endpoint.accept()
            others = asyncio.ensure_future(_accept(endpoint, region, checker))
            await _reply(peer, region, checker)
            others.cancel()
            emit("received", dropped=endpoint.dropped_packets, intact=checker.intact)
            await endpoint.close()  # before the region, which replies may still refer to
    return 0


async def _accept(endpoint: Endpoint, region: Region, checker: Checker) -> None:
    async with asyncio.TaskGroup() as group:
        while True:
            group.create_task(_reply(await endpoint.accept(), region, checker))


async def _reply(peer: Peer, region: Region, checker: Checker) -> None:
    """Reply to a peer's messages; check and release each message when the reply has completed."""
    with contextlib.suppress(PeerError):
        while True:
            message = await peer.recv()
            if message.immediate == BULK:
                message.release()
            else:
                sending = peer.post_send(region, offset=0, length=message.length)
                sending.add_done_callback(partial(_check, message, checker))


def _check(message: Message, checker: Checker, _sending: object) -> None:
    checker.check(message.views(), length=message.length)
    message.release()


async def send(
    host: str, *, port: int, sizes: Sequence[int], seconds: float, busy_poll: bool, loaded: bool, plain: bool
) -> int:
    """Measure each size for its share of `seconds`, idle or beside a bulk flow."""
    config, figures = EndpointConfig(busy_poll=busy_poll, security=Plain() if plain else PSK), {}
    alone_gbps = beside_gbps = 0.0
    async with await Endpoint.open(towards=host, config=config) as endpoint:
        peer = await endpoint.connect(host, port=port)
        bulk = Bulk(await endpoint.connect(host, port=port)) if loaded else None
        if bulk is not None:
            await asyncio.sleep(ALONE_FRACTION * seconds)
            alone_gbps = bulk.lap_gbps()
        for size in sizes:
            figures[name_of(size)] = percentiles(await _ping(peer, size, seconds=seconds / len(sizes)))
        if bulk is not None:
            beside_gbps = bulk.lap_gbps()
            bulk.stop()
        await peer.close()
        dropped = endpoint.dropped_packets
    emit("measured", figures=figures, bulk_alone_gbps=alone_gbps, bulk_gbps=beside_gbps, dropped=dropped)
    return 0


async def _ping(peer: Peer, size: int, *, seconds: float) -> list[float]:
    """Return the duration of each round trip; raise BenchError when a reply differs from what was sent."""
    samples: list[float] = []
    with Region(size, name="bench-ping") as region:
        sent_bytes = pattern(size)
        region.array[:size] = np.frombuffer(sent_bytes, np.uint8)
        warm_at, until = _phases(seconds)
        sent = 0
        while (started := time.perf_counter()) < until or not samples:
            status = peer.post_send(region, offset=0, length=size)
            reply = await peer.recv()
            took_s = time.perf_counter() - started
            if reply.gather() != sent_bytes:
                raise BenchError(f"{size} bytes came back as {reply.length} other bytes")
            reply.release()
            if await status is not Status.OK:
                raise BenchError(f"a message ended with {status.result().name}")
            sent += 1
            if sent > WARM_UP or started >= warm_at:
                samples.append(took_s)
    return samples


def _phases(seconds: float) -> tuple[float, float]:
    """Return when the round trips count at the latest, and the end."""
    now = time.perf_counter()
    return now + WARM_UP_FRACTION * seconds, now + seconds


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


def _received(sock: socket.socket, buffer: memoryview) -> bool:
    """Fill the buffer; return False if the connection ends before."""
    at = 0
    while at < len(buffer):
        count = sock.recv_into(buffer[at:])
        if not count:
            return False
        at += count
    return True


def tcp_receive(host: str, *, sizes: Sequence[int]) -> None:
    """Reply to messages: of each size in turn, each on a connection of its own."""
    checker = Checker(pattern(max(sizes)))
    with make_socket(algorithm=CUBIC, mptcp=False) as listener:
        listener.bind((host, 0))
        listener.listen()
        emit("listening", port=listener.getsockname()[1])
        for size in sizes:
            connection, _ = listener.accept()
            with connection:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                buffer, reply = memoryview(bytearray(size)), memoryview(checker.expected)[:size]
                while _received(connection, buffer):
                    connection.sendall(reply)
                    checker.check([buffer], length=size)
    emit("received", intact=checker.intact)


def tcp_send(host: str, *, port: int, sizes: Sequence[int], seconds: float) -> None:
    """Measure each size for its share of `seconds`."""
    figures: dict[str, dict[str, float]] = {}
    for size in sizes:
        with make_socket(algorithm=CUBIC, mptcp=False) as sock:
            sock.connect((host, port))
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            figures[name_of(size)] = percentiles(_tcp_ping(sock, size, seconds=seconds / len(sizes)))
    emit("measured", figures=figures)


def _tcp_ping(sock: socket.socket, size: int, *, seconds: float) -> list[float]:
    sent, samples, count = pattern(size), list[float](), 0
    buffer = memoryview(bytearray(size))
    warm_at, until = _phases(seconds)
    while (started := time.perf_counter()) < until or not samples:
        sock.sendall(sent)
        if not _received(sock, buffer):
            raise BenchError("the server has closed the connection")
        took_s = time.perf_counter() - started
        if buffer != sent:
            raise BenchError(f"{size} bytes came back changed")
        count += 1
        if count > WARM_UP or started >= warm_at:
            samples.append(took_s)
    return samples
