"""The sender process: opens peers, posts requests of all kinds, cancels, closes, and reconnects."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random
from typing import Final

import numpy as np

from devmem.region import Region
from devmem.registry import Access, Registration
from scripts.benches.torture import layout
from scripts.benches.torture.arena import Arena
from scripts.benches.torture.connection import GIANT_MESSAGE, TorturePeer
from scripts.benches.torture.journal import Journal
from scripts.benches.torture.local import GRACE_S, Orders, RunningTime, config, mapped, set_offloads
from scripts.benches.torture.pattern import fill
from scripts.benches.torture.plans import SenderPlan, TortureScenario
from srd.endpoint import Endpoint
from srd.errors import PeerError, SrdError
from srd.peer import Peer

CONNECT_BOUND_S: Final = 8.0
RECONNECT_S: Final = 0.05
ARENA_BYTES: Final = 8 << 20
"""Minimum size; it is larger if two of the longest messages need more."""


class TortureSender:
    def __init__(
        self,
        scenario: TortureScenario,
        worker: int,
        *,
        incarnation: int,
        directory: Path,
        journal: Journal,
        orders: Orders,
    ) -> None:
        self.seed = scenario.seed
        self.plan: SenderPlan = scenario.senders[worker - 1]
        self.worker = worker
        self.incarnation = incarnation
        self.journal = journal
        self.orders = orders
        self.rng = Random(f"{scenario.seed}/{worker}/{incarnation}")  # noqa: S311 - reproducible, not secret
        self.running = RunningTime(journal.note)
        self.until_s = scenario.seconds
        self.arena = Arena(max(2 * self.plan.longest_bytes, ARENA_BYTES), seed=self.seed)
        self.reads = layout.reads(worker, incarnation=incarnation, size_bytes=layout.READS_BYTES)
        self.read_region = mapped(self.reads, directory, seed=self.seed)
        self.read_ranges: list[tuple[Registration, int]] = []
        """Registrations that reads land in, and their offsets in the file."""
        self.read_used = [0, 0]
        """Bytes of each range that are assigned to reads."""
        self.giant = self._giant()
        self.write_used: dict[int, list[int]] = {}
        """Incarnation of the receiver -> bytes of each target range that are assigned to writes."""
        self._connections: dict[Peer, TorturePeer] = {}

    def _giant(self) -> Region | None:
        """Prepare the longest message before the endpoint opens, as filling it blocks the event loop for seconds."""
        length = self.plan.giant_bytes
        if not length:
            return None
        region = Region(length, name="torture-giant")
        connection_number = layout.connection(self.worker, incarnation=self.incarnation, number=0)
        fill(np.asarray(region.array)[:length], self.seed, owner=connection_number, message=GIANT_MESSAGE)
        return region

    async def run(self, host: str) -> None:
        endpoint = await Endpoint.open(towards=host, config=config(self.plan.endpoint))
        set_offloads(endpoint, self.plan.endpoint)
        self.read_ranges = [
            (endpoint.register(self.read_region, offset=at, length=size, access=Access.LOCAL_WRITE), at)
            for at, size in self.reads.ranges
        ]
        completions = asyncio.ensure_future(self._poll_completions(endpoint))
        number = 0
        finish = self.orders.finish
        while self.running.now_s < self.until_s and number < layout.MAX_CONNECTIONS and not finish.is_set():
            peer = await self._connect(endpoint, host)
            if peer is None:
                await asyncio.sleep(RECONNECT_S)
                continue
            connection_number = layout.connection(self.worker, incarnation=self.incarnation, number=number)
            number += 1
            self._connections[peer] = connection = TorturePeer(self, endpoint, peer, number=connection_number)
            await connection.run()
        bound_s = self.plan.endpoint.request_timeout_s + GRACE_S
        await self.running.bounded(endpoint.close(), bound_s=bound_s, called="Endpoint.close")
        self._connections.clear()
        completions.cancel()
        self.running.stop()
        self.arena.close()
        self.read_region.close()
        if self.giant is not None:
            self.giant.close()

    async def _connect(self, endpoint: Endpoint, host: str) -> Peer | None:
        receiver = await self.orders.receiver()
        connecting = endpoint.connect(host, port=int(receiver["port"]))
        try:
            return await self.running.bounded(connecting, bound_s=CONNECT_BOUND_S, called="connect")
        except (PeerError, SrdError) as error:
            self.journal.note("unconnected", str(error))
            return None

    async def _poll_completions(self, endpoint: Endpoint) -> None:
        while True:
            for entry in await endpoint.completions.wait():
                self._connections[entry.peer].batch_ended(entry.first, count=entry.count, status=int(entry.status))
