"""Rate: small messages through the batch interface, from one endpoint to one or many peers.

All peers are connections between the same two endpoints. In a turn the sender posts `MESSAGES` messages to the peers,
at most `WINDOW` per peer at a time, by the loop of `srd perf rate`; this is timed up to the last completion. The
receiver keeps the messages until all have arrived, and then checks that each arrived exactly once and unchanged: it
starts with its number, and is that row of random bytes which both ends generate from a seed. Only then the memory is
released, and the next turn begins.
"""

from __future__ import annotations

import asyncio
import time
from typing import Final

import numpy as np
import numpy.typing as npt

from devmem.region import Region
from scripts.benches.veth.worker.bulk import DAMAGED, INTACT, WARM_UP_TURNS, Account
from scripts.harness.errors import BenchError
from scripts.harness.events import emit
from srd import Endpoint, EndpointConfig, Message, MessageBatch, Peer, PeerError, Plain, ProtocolConfig
from srd.perf.sweep.measures import post_batches
from srd.perf.sweep.progress import Quota

SEED: Final = 2
TURN_BYTES: Final = 64 << 20
MESSAGES: Final = 1 << 16
"""Messages of a turn; fewer, if they would exceed TURN_BYTES."""
WINDOW: Final = 2048
"""Outstanding messages per peer: half the protocol's window."""
CONFIG: Final = EndpointConfig(
    security=Plain(),
    protocol=ProtocolConfig(
        receive_window_bytes=TURN_BYTES, receive_window_messages=2 * MESSAGES, unresponsive_after_s=10.0
    ),
    receive_region_bytes=4 * TURN_BYTES,
)
"""The defaults, except for windows and a region that hold a turn, with the gaps between small messages, and for peers
that do not reply while they compare bytes."""


def content(message_bytes: int) -> npt.NDArray[np.uint8]:
    """Return a turn's messages, one per row; the first four bytes are the row's number."""
    count = min(MESSAGES, TURN_BYTES // message_bytes)
    rows = np.frombuffer(np.random.default_rng(SEED).bytes(count * message_bytes), np.uint8).reshape(count, -1).copy()
    rows[:, :4] = np.arange(count, dtype="<u4").view(np.uint8).reshape(count, 4)
    return rows


async def send(host: str, *, port: int, seconds: float, message_bytes: int, peers: int) -> int:
    """Send turns until `seconds` were timed."""
    rows, account, sent = content(message_bytes), Account(), 0
    with Region(rows.size, name="bench-rate") as region:
        region.array[: rows.size] = rows.reshape(-1)
        async with await Endpoint.open(towards=host, config=CONFIG) as endpoint:
            opened = [await endpoint.connect(host, port=port) for _ in range(peers)]
            for _ in range(WARM_UP_TURNS):
                await _turn(endpoint, opened, region, rows)
            dropped_before = endpoint.dropped_packets
            while account.seconds < seconds:
                took_s, cpu_s = await _turn(endpoint, opened, region, rows)
                account.seconds += took_s
                account.cpu_s += cpu_s
                sent += len(rows)
            emit(
                "sent",
                messages=sent,
                seconds=account.seconds,
                cpu_s=account.cpu_s,
                dropped=endpoint.dropped_packets - dropped_before,
                packets=sum(peer.stats().tx_pkts for peer in opened),
                retransmitted=sum(peer.stats().retrans_pkts for peer in opened),
            )
    return 0


async def _turn(
    endpoint: Endpoint, peers: list[Peer], region: Region, rows: npt.NDArray[np.uint8]
) -> tuple[float, float]:
    """Send everything; return the duration and this end's CPU time. Raises BenchError for a wrong byte."""
    count, length = rows.shape
    offsets, first = np.arange(count) * length, 0

    def post(peer: Peer, some: int) -> None:
        nonlocal first
        peer.post_sends(region, offsets[first : first + some], lengths=length)
        first += some

    started, cpu_before = time.perf_counter(), time.process_time()
    quota = Quota(count)
    await post_batches(endpoint, peers, depth=WINDOW, quota=quota, post=post, on_complete=lambda _: None)
    seconds, cpu_s = time.perf_counter() - started, time.process_time() - cpu_before
    with await peers[0].recv() as result:
        if result.immediate != INTACT:
            raise BenchError("the receiver found other messages than were sent")
    return seconds, cpu_s


class Collector:
    """The messages received from all peers in this turn."""

    def __init__(self, rows: npt.NDArray[np.uint8]) -> None:
        self._rows = rows
        self._items: list[Message | MessageBatch] = []
        self._count = 0
        self.whole = asyncio.Event()

    async def collect(self, peer: Peer) -> None:
        """Collect a peer's messages until it closes."""
        while True:
            try:
                item = await peer.recv_batch()
            except PeerError:
                return
            self._items.append(item)
            self._count += item.count if isinstance(item, MessageBatch) else 1
            if self._count >= len(self._rows):
                self.whole.set()

    def check(self) -> bool:
        """Return whether each message arrived once and unchanged; release the memory."""
        received = [_rows_of(item) for item in self._items]
        arrived = np.concatenate([rows for rows in received if rows.shape[1] == self._rows.shape[1]])
        numbers = arrived[:, :4].copy().view("<u4").reshape(-1)
        intact = len(arrived) == len(self._rows) and bool((np.bincount(numbers, minlength=len(arrived)) == 1).all())
        intact = intact and np.array_equal(arrived, self._rows[numbers])
        del received, arrived
        for item in self._items:
            item.release()
        self._items.clear()
        self._count = 0
        self.whole.clear()
        return intact


def _rows_of(item: Message | MessageBatch) -> npt.NDArray[np.uint8]:
    if isinstance(item, MessageBatch):
        return item.rows()
    return np.frombuffer(item.gather(), np.uint8).reshape(1, -1)


async def receive(host: str, *, message_bytes: int, peers: int) -> int:
    """Receive turns until the sender closes."""
    rows, cpu_s, intact = content(message_bytes), 0.0, True
    with Region(1, name="bench-result") as empty:
        async with await Endpoint.listen(host, port=0, config=CONFIG) as endpoint:
            emit("listening", port=endpoint.address[1])
            first, *others = [await endpoint.accept() for _ in range(peers)]
            collector = Collector(rows)
            tasks = [asyncio.ensure_future(collector.collect(peer)) for peer in (first, *others)]
            ended, turns, dropped_before = asyncio.gather(*tasks), 0, 0
            while not ended.done():
                cpu_before = time.process_time()
                whole = asyncio.ensure_future(collector.whole.wait())
                await asyncio.wait((whole, ended), return_when=asyncio.FIRST_COMPLETED)
                if not whole.done():
                    whole.cancel()
                    ended.result()  # raises the task's exception
                    break
                turns += 1
                cpu_s += (time.process_time() - cpu_before) if turns > WARM_UP_TURNS else 0
                intact &= collector.check()
                if turns == WARM_UP_TURNS:
                    dropped_before = endpoint.dropped_packets
                await first.post_send(empty, offset=0, length=0, immediate=INTACT if intact else DAMAGED)
            emit(
                "received",
                cpu_s=cpu_s,
                intact=intact,
                dropped=endpoint.dropped_packets - dropped_before,
                bytes_copied=endpoint.bytes_copied,
            )
    return 0
