"""Path: a small request and its reply, one at a time: by messages of a peer, and by asyncio's streams over TCP.

The process at each end has a connection of each kind, and the kinds take turns, so that whatever else slows the machine
slows all of them. All run on the same event loop (uvloop, which sets TCP_NODELAY), and none polls. The reply has the
bytes of the request, which the asking end compares.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from statistics import median
from typing import Final

import numpy as np

from scripts.benches.veth.worker.bulk import PSK, SEED
from scripts.harness.errors import BenchError
from scripts.harness.events import emit
from srd import Endpoint, EndpointConfig, Peer, Plain
from srd.secure.config import SecurityConfig

PLAIN: Final = "plain"
SECURE: Final = "secure"
STREAMS: Final = "streams"
KINDS: Final = (PLAIN, STREAMS, SECURE)
MESSAGE_BYTES: Final = 64
REQUESTS: Final = [
    np.random.default_rng(SEED + number).bytes(MESSAGE_BYTES)
    for number in range(101)  # different ones, so that an old reply is a wrong one
]
WARM_UP_FRACTION: Final = 0.5
"""How long a turn of each kind lasts that does not count, over one that does."""

Ask = Callable[[bytes], Awaitable[bytes]]
"""Sends a request and returns the reply."""


def _settings(security: SecurityConfig) -> EndpointConfig:
    """Return settings without polling: waiting is no cost of a message."""
    return EndpointConfig(security=security, adaptive_poll_s=0)


# -- the answering end ------------------------------------------------------------------------------------------------


async def answer(host: str) -> int:
    """Answer one connection of each kind until all have ended. The TCP one begins with the ports of the others."""
    arrived = asyncio.Queue[tuple[asyncio.StreamReader, asyncio.StreamWriter]]()
    async with (
        await asyncio.start_server(lambda *ends: arrived.put_nowait(ends), host, 0) as server,
        Endpoint.listen(host, 0, config=_settings(Plain())) as plain,
        Endpoint.listen(host, 0, config=_settings(PSK)) as secure,
    ):
        emit("listening", port=server.sockets[0].getsockname()[1])
        reader, writer = await arrived.get()
        writer.write(f"{plain.address[1]} {secure.address[1]}\n".encode())
        await asyncio.gather(_answer_messages(plain), _answer_messages(secure), _answer_stream(reader, writer))
        emit("answered", dropped=plain.dropped_packets + secure.dropped_packets)
    return 0


async def _answer_messages(endpoint: Endpoint) -> None:
    async with await endpoint.accept() as peer:
        async for message in peer:
            await peer.send(message.data())


async def _answer_stream(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while request := await reader.read(MESSAGE_BYTES):
        writer.write(request)
        await writer.drain()
    writer.close()


# -- the asking end ---------------------------------------------------------------------------------------------------


async def ask(host: str, *, port: int, turns: int, seconds: float) -> int:
    """Measure `turns` of each kind, of `seconds` each; emit the figures of each turn by kind."""
    reader, writer = await asyncio.open_connection(host, port)
    plain_port, secure_port = map(int, (await reader.readline()).split())
    async with (
        Endpoint.open(towards=host, config=_settings(Plain())) as plain,
        Endpoint.open(towards=host, config=_settings(PSK)) as secure,
        plain.connect(host, plain_port) as plain_peer,
        secure.connect(host, secure_port) as secure_peer,
    ):
        asks = {
            PLAIN: _by_messages(plain_peer),
            SECURE: _by_messages(secure_peer),
            STREAMS: _by_stream(reader, writer),
        }
        for each in asks.values():
            await measure(each, seconds=WARM_UP_FRACTION * seconds)
        measured = [{kind: await measure(asks[kind], seconds=seconds) for kind in KINDS} for _ in range(turns)]
        emit("measured", turns=measured, dropped=plain.dropped_packets + secure.dropped_packets)
    writer.close()
    return 0


def _by_messages(peer: Peer) -> Ask:
    async def exchange(request: bytes) -> bytes:
        await peer.send(request)
        return (await peer.recv()).data()

    return exchange


def _by_stream(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Ask:
    async def exchange(request: bytes) -> bytes:
        writer.write(request)
        await writer.drain()
        return await reader.readexactly(len(request))

    return exchange


async def measure(exchange: Ask, *, seconds: float) -> dict[str, float]:
    """Ask for `seconds`; return this process's user and system time a round trip, and the median wall time, in us.

    Raises BenchError for a reply with other bytes than its request.
    """
    times_ns = list[int]()
    cpu_before_ns, started_ns = time.process_time_ns(), time.perf_counter_ns()
    now_ns = started_ns
    while now_ns < started_ns + seconds * 1e9:
        request = REQUESTS[len(times_ns) % len(REQUESTS)]
        if await exchange(request) != request:
            raise BenchError(f"the reply to request {len(times_ns)} has other bytes than the request")
        before_ns, now_ns = now_ns, time.perf_counter_ns()
        times_ns.append(now_ns - before_ns)
    cpu_ns = time.process_time_ns() - cpu_before_ns
    return {"cpu_64b_us": cpu_ns / len(times_ns) / 1e3, "p50_64b_us": median(times_ns) / 1e3}
