"""Flows over SRD: one peer to each receiver, a flow's blocks are messages of their own.

A message's immediate has the number of its flow and that of its block. The receiver confirms a flow with one byte,
whose immediate is the flow's number. Without encryption, as TCP has none.
"""

from __future__ import annotations

import asyncio
import time
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Final

from srd.compare.worker.arrivals import Arrivals, WorkloadError
from srd.compare.worker.carrier import Account, FlowCarrier
from srd.compare.worker.plan import BLOCK_BITS, BLOCK_BYTES, Address, PlannedFlow
from srd.config import EndpointConfig
from srd.endpoint import Endpoint
from srd.errors import PeerError, SrdError
from srd.peer import Peer
from srd.perf.payload import PayloadSource
from srd.proto.wire.status import Status
from srd.secure.config import Plain


class SrdEndpoint(FlowCarrier):
    """What carries flows, or a file: an endpoint of this host."""

    def __init__(self, config: EndpointConfig) -> None:
        super().__init__()
        self._config = config
        self._endpoint: Endpoint | None = None

    async def listen(self, address: str) -> int:
        """See FlowCarrier."""
        self._endpoint = await Endpoint.listen(address, 0, config=self._config)
        self._tasks.start(self._accept(self._endpoint))
        return self._endpoint.address[1]

    async def _accept(self, endpoint: Endpoint) -> None:
        while True:
            self._tasks.start(self._receive(await endpoint.accept()))

    @abstractmethod
    async def _receive(self, peer: Peer) -> None:
        """Receive from a sender."""

    async def _connect(self, to: Address) -> Peer:
        """Open a peer. Raises WorkloadError."""
        assert self._endpoint is not None  # noqa: S101 - `listen` comes first
        try:
            return await self._endpoint.connect(*to)
        except PeerError as error:
            raise WorkloadError(str(error)) from error

    def account(self) -> Account:
        """See FlowCarrier."""
        if self._endpoint is None:
            return Account(0, 0)
        stats = self._endpoint.stats()
        return Account(stats.tx_pkts, stats.retrans_pkts)

    async def close(self) -> None:
        """See FlowCarrier."""
        await super().close()
        if self._endpoint is not None:
            with suppress(SrdError, TimeoutError):
                async with asyncio.timeout(0.5):
                    await self._endpoint.close()


class SrdCarrier(SrdEndpoint):
    """An endpoint with its peers."""

    def __init__(self, arrivals: Arrivals, source: PayloadSource) -> None:
        super().__init__(EndpointConfig(security=Plain()))
        self._arrivals, self._source = arrivals, source
        self._peers: dict[Address, Peer] = {}
        self._turns: dict[Address, Turns] = {}
        self._confirmed: dict[Address, dict[int, asyncio.Future[None]]] = {}

    async def connect(self, targets: Mapping[Address, int]) -> None:
        """See FlowCarrier."""
        for target in targets:
            peer = self._peers[target] = await self._connect(target)
            waiting = self._confirmed[target] = {}
            self._turns[target] = Turns(partial(_cwnd_bytes, peer), block_bytes=BLOCK_BYTES)
            self._tasks.start(self._hear(peer, waiting))
            await self.send(PlannedFlow(0, target, 1, 0.0))

    async def send(self, flow: PlannedFlow) -> None:
        """See FlowCarrier."""
        peer, turns = self._peers[flow.to], self._turns[flow.to]
        confirmed = self._confirmed[flow.to][flow.number] = asyncio.get_running_loop().create_future()
        for index, length in flow.blocks():
            await turns.take(length)
            offset = self._source.offset(flow.number + index)
            immediate = flow.number << BLOCK_BITS | index
            posted = peer.post_send(self._source.region, offset=offset, length=length, immediate=immediate)
            posted.add_done_callback(partial(_completed, turns, length, confirmed))
        await confirmed

    async def _receive(self, peer: Peer) -> None:
        """Receive the blocks of a sender."""
        with suppress(PeerError):  # it has ended, which its sender says
            while True:
                with await peer.recv() as message:
                    flow, block = divmod(message.immediate or 0, 1 << BLOCK_BITS)
                    complete, at = False, 0
                    for view in message.views():
                        complete = self._arrivals.arrived(flow, block=block, at=at, data=view)
                        at += len(view)
                if complete:
                    peer.post_send(self._source.region, offset=0, length=1, immediate=flow)

    async def _hear(self, peer: Peer, waiting: dict[int, asyncio.Future[None]]) -> None:
        """Receive the confirmations of a receiver; if it ends, those that are missing are errors."""
        try:
            while True:
                with await peer.recv() as message:
                    confirmed = waiting.pop(message.immediate or 0, None)
                if confirmed is not None and not confirmed.done():
                    confirmed.set_result(None)
        except PeerError as error:
            for confirmed in waiting.values():
                if not confirmed.done():
                    confirmed.set_exception(WorkloadError(str(error)))


def _cwnd_bytes(peer: Peer) -> int:
    return peer.stats().cwnd_bytes


def _completed(turns: Turns, size_bytes: int, confirmed: asyncio.Future[None], posted: asyncio.Future[Status]) -> None:
    """Note that a block's request has ended."""
    turns.done(size_bytes)
    if not posted.cancelled() and (status := posted.result()) is not Status.OK and not confirmed.done():
        confirmed.set_exception(WorkloadError(f"a message failed: {status.name}"))


LOOK_S: Final = 0.005
"""How often the window is looked at."""


class Turns:
    """Who may post next to a peer: flows take turns, block by block, and little is posted ahead of the window.

    A peer sends in the order of posting, so what is posted delays every flow that comes later. TCP's flows have
    connections of their own, between which the kernel is fair; this is the same for flows over one peer.
    """

    def __init__(self, cwnd_bytes: Callable[[], int], *, block_bytes: int) -> None:
        """`cwnd_bytes` returns the peer's congestion window."""
        self._cwnd_bytes = cwnd_bytes
        self._block_bytes = block_bytes
        self._posted_bytes = 0
        self._limit_bytes = 0
        self._look_at = 0.0
        self._waiting = deque[tuple[asyncio.Future[None], int]]()

    def _limit(self) -> int:
        """Return how much may be posted: the window, which stays full, and a block or a quarter more."""
        now = time.monotonic()
        if now >= self._look_at:
            self._look_at = now + LOOK_S
            window_bytes = self._cwnd_bytes()
            self._limit_bytes = window_bytes + max(self._block_bytes, window_bytes // 4)
        return self._limit_bytes

    async def take(self, size_bytes: int) -> None:
        """Wait until it is this flow's turn to post so much."""
        if self._waiting or self._posted_bytes >= self._limit():
            turn = asyncio.get_running_loop().create_future()
            self._waiting.append((turn, size_bytes))
            await turn  # what is given a turn has been counted
        else:
            self._posted_bytes += size_bytes

    def done(self, size_bytes: int) -> None:
        """So much is not posted any more."""
        self._posted_bytes -= size_bytes
        while self._waiting and self._posted_bytes < self._limit():
            turn, next_bytes = self._waiting.popleft()
            if not turn.done():  # cancelled, at the end of the workload
                self._posted_bytes += next_bytes
                turn.set_result(None)
