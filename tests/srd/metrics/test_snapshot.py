"""srd.metrics.snapshot: what is read of an endpoint while its peers come and go."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import cast

from srd.endpoint import Endpoint
from srd.metrics.snapshot import MAX_LISTED_PEERS, collect
from srd.stats import EndpointStats, PeerStats, with_peers
from tests.srd.loopback import pair, receive, send


class FakePeer:
    """A peer that sends a packet each time that it is read."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.address = ("192.0.2.1", 1000 + number)
        self.incoming = True
        self.paths: list[object] = []
        self.sent = 0

    def stats(self) -> PeerStats:
        self.sent += 1
        return PeerStats(tx_pkts=self.sent)


class FakeEndpoint:
    """Peers that end while others are read."""

    def __init__(self, count: int) -> None:
        self.open = [FakePeer(number) for number in range(count)]
        self.ended = EndpointStats()

    @property
    def peers(self) -> list[FakePeer]:
        return list(self.open)

    def ended_stats(self) -> EndpointStats:
        return replace(self.ended, peers=0)

    def end(self, index: int) -> None:
        self.ended = with_peers(self.ended, [self.open.pop(index).stats()])


async def test_collect__counters_never_decrease_and_count_a_peer_once() -> None:
    """Peers end before and after the reader has come to them."""
    endpoint = FakeEndpoint(100)
    before, done = 0, asyncio.Event()

    async def end_some() -> None:
        while endpoint.open and not done.is_set():
            endpoint.end(0)
            endpoint.end(-1)
            await asyncio.sleep(0)

    ending = asyncio.ensure_future(end_some())
    while endpoint.open:
        everyone = [*endpoint.open]
        ended = endpoint.ended.tx_pkts
        snapshot = await collect(cast("Endpoint", endpoint), title="t")
        assert before <= snapshot.stats.tx_pkts <= ended + sum(peer.sent for peer in everyone)
        before = snapshot.stats.tx_pkts
        await asyncio.sleep(0)
    done.set()
    await ending


async def test_collect__bounds_the_peers_it_lists_and_lets_others_run() -> None:
    endpoint = FakeEndpoint(1000)
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.ensure_future(count_turns())
    snapshot = await collect(cast("Endpoint", endpoint), title="t")
    counting.cancel()
    assert turns > 50
    assert (snapshot.stats.peers, snapshot.stats.tx_pkts) == (1000, 1000)
    assert [peer.number for peer in snapshot.peers] == list(range(MAX_LISTED_PEERS)), "those that were opened first"


async def test_collect__an_endpoint() -> None:
    async with pair() as (a, _, to_b, from_a):
        await send(to_b, b"x" * 300_000)
        assert len(await receive(from_a)) == 300_000
        snapshot = await collect(a, title="here")
        (peer,) = snapshot.peers
        assert (snapshot.title, peer.number, peer.incoming) == ("here", to_b.number, False)
        assert peer.stats.tx_bytes == snapshot.stats.tx_bytes > 300_000
        (path, *_) = snapshot.as_json()["peers"][0]["paths"]
        assert path["state"] == "active"
        assert sum(each["bytes"] for each in snapshot.as_json()["peers"][0]["paths"]) == peer.stats.tx_bytes
        assert a.stats() == with_peers(a.ended_stats(), [to_b.stats()])


async def test_stats__peers_that_have_ended_count_on() -> None:
    async with pair() as (a, _, to_b, from_a):
        await send(to_b, b"x" * 5000)
        await receive(from_a)
        before = a.stats()
        await to_b.close()
        assert a.peers == []
        after = (await collect(a, title="t")).stats
        assert (after.peers, after.tx_bytes) == (0, before.tx_bytes)
