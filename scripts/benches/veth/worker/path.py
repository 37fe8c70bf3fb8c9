"""Path: messages and their replies, by the API of a peer, and by asyncio's streams over TCP.

The process at each end has a connection for each kind and workload, and the kinds take turns, so that whatever else
slows the machine slows all of them. All run on the same event loop (uvloop, which sets TCP_NODELAY), and none polls. A
workload sends some messages at once; the reply has the bytes of the last one, which the asking end compares.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

import numpy as np

from devmem.region import Region
from netns.base.output import emit
from scripts.benches.veth.worker.bulk import PSK, SEED
from scripts.harness.errors import BenchError
from scripts.harness.rooms import begin
from srd import Endpoint, EndpointConfig, Message, Peer, PeerError, Plain, ProtocolConfig
from srd.secure.config import SecurityConfig

PLAIN: Final = "plain"
SECURE: Final = "secure"
STREAMS: Final = "streams"
KINDS: Final = (PLAIN, STREAMS, SECURE)
WARM_UP_FRACTION: Final = 0.5
"""How long a turn of each kind lasts that does not count, over one that does."""


@dataclass(frozen=True, slots=True)
class PathLoad:
    """`count` messages of `size_bytes` at once, and a reply of as many bytes as one; `is_batch`: by `post_sends`."""

    size_bytes: int
    count: int = 1
    is_batch: bool = False

    def requests(self) -> list[bytes]:
        """Return different messages, so that an old reply is a wrong one."""
        return [np.random.default_rng(SEED + number).bytes(self.size_bytes) for number in range(101)]


WORKLOADS: Final = {
    "64b": PathLoad(64),
    "64b_x64": PathLoad(64, count=64),
    "64b_batch": PathLoad(64, count=64, is_batch=True),
    "64k": PathLoad(64 << 10),
    "1m": PathLoad(1 << 20),
}
"""By the suffix of their figures."""
Ask = Callable[[bytes], Awaitable[bytes]]
"""Sends the messages of a workload and returns the reply."""


def _settings(security: SecurityConfig) -> EndpointConfig:
    """Return settings without polling: waiting is no cost of a message. A peer waits for its turn among others."""
    return EndpointConfig(protocol=ProtocolConfig(unresponsive_after_s=10.0), security=security, adaptive_poll_s=0)


# -- the answering end ------------------------------------------------------------------------------------------------


async def answer(*, host: str, workloads: Sequence[str]) -> int:
    """Answer a connection of each kind and workload until all have ended. The first TCP one begins with the ports."""
    arrived = asyncio.Queue[tuple[asyncio.StreamReader, asyncio.StreamWriter]]()
    async with (
        await asyncio.start_server(lambda *ends: arrived.put_nowait(ends), host, 0, limit=4 << 20) as server,
        Endpoint.listen(host, 0, config=_settings(Plain())) as plain,
        Endpoint.listen(host, 0, config=_settings(PSK)) as secure,
        asyncio.TaskGroup() as group,
    ):
        emit("listening", port=server.sockets[0].getsockname()[1])
        for number, name in enumerate(workloads):
            reader, writer = await arrived.get()
            if not number:
                writer.write(f"{plain.address[1]} {secure.address[1]} {os.getpid()}\n".encode())
            group.create_task(_answer_stream(reader, writer, workload=WORKLOADS[name]))
            for endpoint in (plain, secure):
                group.create_task(_answer_messages(await endpoint.accept(), workload=WORKLOADS[name]))
    emit("answered", dropped=plain.dropped_packets + secure.dropped_packets)
    return 0


async def _answer_messages(peer: Peer, *, workload: PathLoad) -> None:
    left, arrivals = workload.count, _batches(peer) if workload.is_batch else _singly(peer)
    async with peer:
        async for number, last in arrivals:
            left -= number
            if not left:
                left = workload.count
                await peer.send(last)


async def _singly(peer: Peer) -> AsyncIterator[tuple[int, bytes]]:
    async for message in peer:
        yield 1, message.data()


async def _batches(peer: Peer) -> AsyncIterator[tuple[int, bytes]]:
    with suppress(PeerError):  # closed by the asking end
        while True:
            arrived = await peer.recv_batch()
            if isinstance(arrived, Message):
                yield 1, arrived.data()
                continue
            rows = arrived.rows()
            found = len(rows), rows[-1].tobytes()
            del rows
            arrived.release()
            yield found


async def _answer_stream(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, workload: PathLoad) -> None:
    with suppress(asyncio.IncompleteReadError):  # closed by the asking end
        while True:
            for _ in range(workload.count):
                last = await reader.readexactly(workload.size_bytes)
            writer.write(last)
            await writer.drain()
    writer.close()


# -- the asking end ---------------------------------------------------------------------------------------------------


async def ask(
    *,
    host: str,
    port: int,
    turns: int,
    seconds: float,
    workloads: Sequence[str],
    kinds: Sequence[str] = KINDS,
    control: str = "",
) -> int:
    """Measure `turns` of each kind and workload, of `seconds` each; emit the figures of each turn by both.

    `control`: the file to be told when what counts begins, if there is one (see scripts/harness/rooms.py).
    """
    asks: dict[tuple[str, str], Ask] = {}
    ports: list[int] = []
    async with (
        Endpoint.open(towards=host, config=_settings(Plain())) as plain,
        Endpoint.open(towards=host, config=_settings(PSK)) as secure,
        AsyncExitStack() as opened,
    ):
        for name in workloads:
            reader, writer = await asyncio.open_connection(host, port, limit=4 << 20)
            opened.callback(writer.close)
            if not ports:
                ports += map(int, (await reader.readline()).split())
            asks[STREAMS, name] = _by_stream(reader, writer, workload=WORKLOADS[name])
            for kind, endpoint, its_port in ((PLAIN, plain, ports[0]), (SECURE, secure, ports[1])):
                peer = await opened.enter_async_context(endpoint.connect(host, its_port))
                asks[kind, name] = _by_messages(peer, workload=WORKLOADS[name])
        for (kind, name), each in asks.items():
            if kind in kinds:
                await measure(each, name=name, seconds=WARM_UP_FRACTION * seconds)
        if control:
            begin(Path(control))
        measured = []
        for _ in range(turns):
            turn = {
                name: {
                    kind: await measure(asks[kind, name], name=name, seconds=seconds, other_end=ports[2])
                    for kind in kinds
                }
                for name in workloads
            }
            measured.append(turn)
        emit("measured", turns=measured, dropped=plain.dropped_packets + secure.dropped_packets)
    return 0


def _by_messages(peer: Peer, *, workload: PathLoad) -> Ask:
    count, size = workload.count, workload.size_bytes

    async def one(request: bytes) -> bytes:
        await peer.send(request)
        return (await peer.recv()).data()

    async def several(request: bytes) -> bytes:
        await asyncio.gather(*(peer.send(request) for _ in range(count)))
        return (await peer.recv()).data()

    region = Region(count * size, name="bench-path") if workload.is_batch else None
    places = [number * size for number in range(count)]

    async def batch(request: bytes) -> bytes:
        assert region is not None  # noqa: S101 - of this workload
        region[: count * size] = request * count
        peer.post_sends(region, places, lengths=size)
        return (await peer.recv()).data()

    return batch if workload.is_batch else one if count == 1 else several


def _by_stream(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, workload: PathLoad) -> Ask:
    async def exchange(request: bytes) -> bytes:
        for piece in [request * workload.count] if workload.is_batch else [request] * workload.count:
            writer.write(piece)
            await writer.drain()
        return await reader.readexactly(len(request))

    return exchange


def _processor_ns(process: int) -> int:
    """Return the user and system time of a process of this host; 0: none is asked for."""
    return int(Path(f"/proc/{process}/schedstat").read_text().split()[0]) if process else 0


async def measure(exchange: Ask, *, name: str, seconds: float, other_end: int = 0) -> dict[str, float]:
    """Ask for `seconds`; return user and system time a message of this process and of another, and wall time, in us.

    Wall time is the median of an exchange, over its messages. Raises BenchError for a reply with other bytes than its
    request.
    """
    requests, count = WORKLOADS[name].requests(), WORKLOADS[name].count
    times_ns = list[int]()
    cpu_before_ns, other_before_ns, started_ns = (
        time.process_time_ns(),
        _processor_ns(other_end),
        time.perf_counter_ns(),
    )
    now_ns = started_ns
    while now_ns < started_ns + seconds * 1e9:
        request = requests[len(times_ns) % len(requests)]
        if await exchange(request) != request:
            raise BenchError(f"the reply to request {len(times_ns)} has other bytes than the request")
        before_ns, now_ns = now_ns, time.perf_counter_ns()
        times_ns.append(now_ns - before_ns)
    messages = len(times_ns) * count * 1e3
    return {
        "cpu": (time.process_time_ns() - cpu_before_ns) / messages,
        "answer_cpu": (_processor_ns(other_end) - other_before_ns) / messages,
        "p50": median(times_ns) / count / 1e3,
    }
