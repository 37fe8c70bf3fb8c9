"""Ping-pong: a message and a reply of the same length, one at a time; SRD, and kernel TCP with TCP_NODELAY.

Both ends wait for the whole message before they reply. TCP's ends are plain blocking sockets, the fastest way in
Python. Under load, SRD has a second peer between the same two endpoints, with `BULK_MESSAGES` of 1 MiB outstanding; TCP
has a concurrent iperf3 (see cases/latency.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
import time
from collections import deque
from typing import Final

import numpy as np

from devmem.region import Region
from scripts.benches.veth.worker.bulk import MESSAGE_BYTES, PSK
from scripts.compare.tcp_socket import CUBIC, make_socket
from scripts.harness.errors import BenchError
from scripts.harness.events import emit
from srd import Endpoint, EndpointConfig, Peer, PeerError, Plain, Status

SIZES: Final = {"64b": 64, "4kib": 4 << 10, "64kib": 64 << 10, "1mib": 1 << 20}
WARM_UP: Final = 200
"""Round trips of each size that do not count."""
BULK_MESSAGES: Final = 16
BULK: Final = 1
"""Immediate of a bulk peer's first message: its messages get no reply."""


def percentiles(samples_s: list[float]) -> dict[str, float]:
    """Return the figures of one size, in microseconds."""
    found = np.percentile(np.array(samples_s) * 1e6, (50, 99, 99.9))
    return dict(zip(("p50_us", "p99_us", "p999_us"), map(float, found), strict=True))


def pattern(size: int) -> bytes:
    """Return the contents of a message of this size, without a period, so that misplaced data is detected."""
    return np.random.default_rng(size).bytes(size)


# -- ours -------------------------------------------------------------------------------------------------------------


async def receive(host: str, *, busy_poll: bool, plain: bool) -> int:
    """Echo messages of all peers until the first one has closed."""
    config = EndpointConfig(busy_poll=busy_poll, security=Plain() if plain else PSK)
    async with await Endpoint.listen(host, port=0, config=config) as endpoint:
        emit("listening", port=endpoint.address[1])
        peer = await endpoint.accept()
        others = asyncio.ensure_future(_accept(endpoint))
        await _echo(peer)
        others.cancel()
        emit("received", dropped=endpoint.dropped_packets)
    return 0


async def _accept(endpoint: Endpoint) -> None:
    async with asyncio.TaskGroup() as group:
        while True:
            group.create_task(_echo(await endpoint.accept()))


async def _echo(peer: Peer) -> None:
    """Echo from two buffers in turn, so that the status of a reply is awaited only when its buffer is reused."""
    with contextlib.ExitStack() as stack, contextlib.suppress(PeerError):
        regions = [stack.enter_context(Region(max(SIZES.values()), name=f"bench-reply-{n}")) for n in range(2)]
        sent: deque[asyncio.Future[Status]] = deque()
        for region in itertools.cycle(regions):
            message = await peer.recv()
            if message.immediate == BULK:
                message.release()
                continue
            if len(sent) == len(regions):
                await sent.popleft()
            at = 0
            for view in message.views():
                region.array[at : at + len(view)] = view
                at += len(view)
            message.release()
            sent.append(peer.send(region, offset=0, length=at))


async def send(host: str, *, port: int, seconds: float, busy_poll: bool, loaded: bool, plain: bool) -> int:
    """Measure each size for its share of `seconds`; under load the smallest alone."""
    sizes = {"64b": SIZES["64b"]} if loaded else SIZES
    config, figures = EndpointConfig(busy_poll=busy_poll, security=Plain() if plain else PSK), {}
    async with await Endpoint.open(towards=host, config=config) as endpoint:
        peer = await endpoint.connect(host, port=port)
        bulk = Bulk(await endpoint.connect(host, port=port)) if loaded else None
        for name, size in sizes.items():
            figures[name] = percentiles(await _ping(peer, size, seconds=seconds / len(sizes)))
        if bulk is not None:
            bulk.stop()
        await peer.close()
        emit(
            "measured",
            figures=figures,
            bulk_gbps=bulk.gbps if bulk is not None else 0.0,
            dropped=endpoint.dropped_packets,
        )
    return 0


async def _ping(peer: Peer, size: int, *, seconds: float) -> list[float]:
    """Return the duration of each round trip; raise BenchError when a reply differs from what was sent."""
    samples: list[float] = []
    with Region(size, name="bench-ping") as region:
        sent_bytes = pattern(size)
        region.array[:size] = np.frombuffer(sent_bytes, np.uint8)
        until = time.perf_counter() + seconds
        sent = 0
        while (started := time.perf_counter()) < until or not samples:
            status = peer.send(region, offset=0, length=size)
            reply = await peer.recv()
            took_s = time.perf_counter() - started
            if reply.gather() != sent_bytes:
                raise BenchError(f"{size} bytes came back as {reply.length} other bytes")
            reply.release()
            if await status is not Status.OK:
                raise BenchError(f"a message ended with {status.result().name}")
            sent += 1
            if sent > WARM_UP:
                samples.append(took_s)
    return samples


class Bulk:
    """A background flow with a constant number of outstanding long messages."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._region = Region(MESSAGE_BYTES, name="bench-bulk")
        self._started, self._bytes, self._stopped = time.perf_counter(), 0, False
        for _ in range(BULK_MESSAGES):
            self._post()

    @property
    def gbps(self) -> float:
        """Acknowledged data over the time since the flow began."""
        return 8 * self._bytes / (time.perf_counter() - self._started) / 1e9

    def stop(self) -> None:
        """Stop posting."""
        self._stopped = True

    def _post(self) -> None:
        if not self._stopped:
            future = self._peer.send(self._region, offset=0, length=MESSAGE_BYTES, immediate=BULK)
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


def tcp_receive(host: str) -> None:
    """Echo the messages of one connection: of each size in turn, until one that begins with zeros."""
    with make_socket(algorithm=CUBIC, mptcp=False) as listener:
        listener.bind((host, 0))
        listener.listen()
        emit("listening", port=listener.getsockname()[1])
        connection, _ = listener.accept()
    with connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for size in SIZES.values():
            buffer = memoryview(bytearray(size))
            while _received(connection, buffer) and any(buffer[:8]):  # zeros: the next size
                connection.sendall(buffer)
    emit("received")


def tcp_send(host: str, *, port: int, seconds: float, loaded: bool) -> None:
    """Measure as `send` does."""
    figures: dict[str, dict[str, float]] = {}
    with make_socket(algorithm=CUBIC, mptcp=False) as sock:
        sock.connect((host, port))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for name, size in SIZES.items():
            if name == "64b" or not loaded:
                figures[name] = percentiles(_tcp_ping(sock, size, seconds=seconds / (1 if loaded else len(SIZES))))
            sock.sendall(bytes(size))
    emit("measured", figures=figures)


def _tcp_ping(sock: socket.socket, size: int, *, seconds: float) -> list[float]:
    sent, samples, count = pattern(size), list[float](), 0
    buffer = memoryview(bytearray(size))
    until = time.perf_counter() + seconds
    while (started := time.perf_counter()) < until or not samples:
        sock.sendall(sent)
        if not _received(sock, buffer):
            raise BenchError("the server has closed the connection")
        took_s = time.perf_counter() - started
        if buffer != sent:
            raise BenchError(f"{size} bytes came back changed")
        count += 1
        if count > WARM_UP:
            samples.append(took_s)
    return samples
