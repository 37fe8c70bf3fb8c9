"""Peers: one endpoint with many peers, all sharing its sockets.

The sender connects its endpoint to the receiver's several times. Then it sends messages of one packet to each peer in
turn, one at a time, `MESSAGES` in all. Only one message is in flight, so the runs differ only in the number of peers.
The cost is this process's CPU time (user and system) per data packet sent. With `trace_memory` nothing is timed; the
memory that Python has allocated is measured before the peers are opened, and after each got a message.
"""

from __future__ import annotations

import asyncio
import gc
import time
import tracemalloc
from typing import Final

import numpy as np

from devmem.region import Region
from netns.base.output import emit
from scripts.harness.errors import BenchError
from srd import Endpoint, EndpointConfig, Peer, PeerError, Plain, ProtocolConfig, Status

MESSAGE_BYTES: Final = 4096
MESSAGES: Final = 20_000
AT_A_TIME: Final = 50
"""Concurrent handshakes."""
MAX_PEERS: Final = 16_384
"""Limit of peers; more than are measured."""
CONFIG: Final = EndpointConfig(
    security=Plain(), adaptive_poll_s=0, protocol=ProtocolConfig(max_peers=MAX_PEERS, max_peers_per_address=MAX_PEERS)
)
"""Settings without polling, as waiting is no cost of a packet, and with many peers of one host."""


async def receive(*, host: str) -> int:
    """Receive messages from any number of peers, until the first has closed; check every byte."""
    expected = np.random.default_rng(MESSAGE_BYTES).bytes(MESSAGE_BYTES)
    intact, tasks = True, list[asyncio.Future[None]]()

    async def receive_all(peer: Peer) -> None:
        nonlocal intact
        while True:
            try:
                message = await peer.recv()
            except PeerError:
                return
            intact &= message.gather() == expected
            message.release()

    async def accept() -> None:
        while True:
            tasks.append(asyncio.ensure_future(receive_all(await endpoint.accept())))

    async with await Endpoint.listen(host, port=0, config=CONFIG) as endpoint:
        emit("listening", port=endpoint.address[1])
        first = asyncio.ensure_future(endpoint.accept())
        peer = await first
        accepting = asyncio.ensure_future(accept())
        await receive_all(peer)
        accepting.cancel()
        emit("received", intact=intact, dropped=endpoint.dropped_packets)
    return 0


async def send(*, host: str, port: int, peers: int, trace_memory: bool) -> int:
    with Region(MESSAGE_BYTES, name="bench-peers") as region:
        region.array[:] = np.frombuffer(np.random.default_rng(MESSAGE_BYTES).bytes(MESSAGE_BYTES), np.uint8)
        async with await Endpoint.open(towards=host, config=CONFIG) as endpoint:
            opened = [await endpoint.connect(host, port=port)]
            await _post(opened * 100, region)  # to warm up
            if trace_memory:
                tracemalloc.start()
            gc.collect()
            before_bytes, _ = tracemalloc.get_traced_memory()
            started = time.perf_counter()
            while len(opened) < peers:
                count = min(AT_A_TIME, peers - len(opened))
                opened += await asyncio.gather(*(endpoint.connect(host, port=port) for _ in range(count)))
            connect_s = time.perf_counter() - started
            await _post(opened, region)
            gc.collect()
            used_bytes = tracemalloc.get_traced_memory()[0] - before_bytes
            tracemalloc.stop()
            cost_us = 0.0 if trace_memory else await _cost_us(opened, region)
            emit(
                "measured",
                bytes_per_peer=used_bytes / max(len(opened) - 1, 1),
                cost_us=cost_us,
                connect_s=connect_s,
                dropped=endpoint.dropped_packets,
            )
            await opened[0].close()
    return 0


async def _post(peers: list[Peer], region: Region) -> None:
    for peer in peers:
        status = await peer.post_send(region, offset=0, length=MESSAGE_BYTES)
        if status is not Status.OK:
            raise BenchError(f"a message ended with {status.name}")


async def _cost_us(peers: list[Peer], region: Region) -> float:
    """Return this process's CPU time per data packet sent, in microseconds."""
    turns = -(-MESSAGES // len(peers))
    before, cpu_before = sum(peer.stats().tx_pkts for peer in peers), time.process_time()
    for _ in range(turns):
        await _post(peers, region)
    cpu_s = time.process_time() - cpu_before
    return cpu_s / (sum(peer.stats().tx_pkts for peer in peers) - before) * 1e6
