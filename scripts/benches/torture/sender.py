"""A process that sends: opens peers, posts everything that can be posted, cancels, leaves, and comes back."""

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
from scripts.benches.torture.connection import GIANT_MESSAGE, GRACE_S, Connection
from scripts.benches.torture.journal import Journal
from scripts.benches.torture.local import Orders, RunningTime, config, mapped, set_offloads
from scripts.benches.torture.pattern import fill
from scripts.benches.torture.plans import Scenario, SenderPlan
from srd.endpoint import Endpoint
from srd.errors import PeerError, SrdError
from srd.peer import Peer

CONNECT_BOUND_S: Final = 8.0
AGAIN_S: Final = 0.05
ARENA_BYTES: Final = 8 << 20
"""At least; and room for two of the longest messages."""


class Sender:
    """One incarnation of a sending process."""

    def __init__(
        self, scenario: Scenario, who: int, *, incarnation: int, directory: Path, journal: Journal, orders: Orders
    ) -> None:
        self.seed = scenario.seed
        self.plan: SenderPlan = scenario.senders[who - 1]
        self.who = who
        self.incarnation = incarnation
        self.journal = journal
        self.orders = orders
        self.rng = Random(f"{scenario.seed}/{who}/{incarnation}")  # noqa: S311 - to be drawn again alike
        self.running = RunningTime()
        self.until_s = scenario.seconds
        self.arena = Arena(max(2 * self.plan.longest_bytes, ARENA_BYTES), seed=self.seed)
        self.reads = layout.reads(who, incarnation=incarnation, size_bytes=layout.READS_BYTES)
        self.read_region = mapped(self.reads, directory, seed=self.seed)
        self.landings: list[tuple[Registration, int]] = []
        """Registrations that reads land in, and their offsets in the file."""
        self.landed = [0, 0]
        """Of each of these, what reads were given."""
        self.giant = self._giant()
        self.used: dict[int, list[int]] = {}
        """Life of the receiver -> of each range that may be written, what writes were given."""
        self._connections: dict[Peer, Connection] = {}

    def _giant(self) -> Region | None:
        """Return the second message of the first connection: filling it takes seconds, in which nothing is answered."""
        length = self.plan.giant_bytes
        if not length:
            return None
        region = Region(length, name="torture-giant")
        who = layout.connection(self.who, incarnation=self.incarnation, number=0)
        fill(np.asarray(region.array)[:length], self.seed, who=who, message=GIANT_MESSAGE)
        return region

    async def run(self, host: str) -> None:
        """All of it: ends when everything is closed."""
        endpoint = await Endpoint.open(towards=host, config=config(self.plan.endpoint))
        set_offloads(endpoint, self.plan.endpoint)
        self.landings = [
            (endpoint.register(self.read_region, offset=at, length=size, access=Access.LOCAL_WRITE), at)
            for at, size in self.reads.ranges
        ]
        completions = asyncio.ensure_future(self._take_completions(endpoint))
        number = 0
        while self.running.now_s < self.until_s and number < layout.MAX_CONNECTIONS:
            peer = await self._connect(endpoint, host)
            if peer is None:
                await asyncio.sleep(AGAIN_S)
                continue
            who = layout.connection(self.who, incarnation=self.incarnation, number=number)
            number += 1
            self._connections[peer] = connection = Connection(self, endpoint, peer, who=who)
            await connection.run()
        await self._close(endpoint)
        completions.cancel()
        self.running.stop()
        self.arena.close()
        self.read_region.close()
        if self.giant is not None:
            self.giant.close()

    async def _connect(self, endpoint: Endpoint, host: str) -> Peer | None:
        receiver = await self.orders.receiver()
        connecting = asyncio.ensure_future(endpoint.connect(host, port=int(receiver["port"])))
        if not await self.running.bounded(connecting, bound_s=CONNECT_BOUND_S):
            self.journal.note("hang", f"connect did not return within {CONNECT_BOUND_S:g} s")
            connecting.cancel()
            return None
        try:
            return connecting.result()
        except (PeerError, SrdError) as error:
            self.journal.note("unconnected", str(error))
            return None

    async def _take_completions(self, endpoint: Endpoint) -> None:
        while True:
            for entry in await endpoint.completions.wait():
                self._connections[entry.peer].batch_ended(entry.first, count=entry.count, status=int(entry.status))

    async def _close(self, endpoint: Endpoint) -> None:
        bound_s = self.plan.endpoint.request_timeout_s + GRACE_S
        closing = asyncio.ensure_future(endpoint.close())
        if not await self.running.bounded(closing, bound_s=bound_s):
            self.journal.note("hang", f"Endpoint.close did not return within {bound_s:g} s")
            closing.cancel()
        else:
            closing.result()
        self._connections.clear()
