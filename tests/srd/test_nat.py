"""Endpoints with a NAT between them, on real sockets: every byte compared, all paths used, rebindings survived."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

import pytest

from srd.config import EndpointConfig
from srd.endpoint import Endpoint
from srd.peer import Peer
from srd.proto.wire.status import Status
from tests.patience import PATIENCE_S, until
from tests.srd.loopback import PLAIN, SMALL, content, receive, send
from tests.srd.lossy import HOST
from tests.srd.nat_relay import NatRelay, nat_relay

PATHS = SMALL.protocol.paths
PATIENT = [  # on a machine that stalls for a second no end gives the other up
    replace(config, protocol=replace(config.protocol, unresponsive_after_s=PATIENCE_S)) for config in (PLAIN, SMALL)
]
CONFIGS = pytest.mark.parametrize("config", PATIENT, ids=["plain", "secure"])
MESSAGE_BYTES = 300_000


@dataclass(frozen=True)
class Link:
    """A client, a server, and the NAT between them."""

    nat: NatRelay
    client: Peer
    server: Peer

    async def exchange(self, *, messages: int, seed: int) -> None:
        """Send messages both ways at once, and compare every byte."""
        await asyncio.gather(
            transfer(self.client, self.server, messages=messages, seed=seed),
            transfer(self.server, self.client, messages=messages, seed=seed + 1),
        )


@asynccontextmanager
async def linked(config: EndpointConfig, *, lifetime_s: float = 30.0) -> AsyncIterator[Link]:
    async with (
        asyncio.timeout(2 * PATIENCE_S),
        await Endpoint.listen(HOST, port=0, config=config) as two,
        nat_relay(two.address[1], lifetime_s=lifetime_s) as nat,
        await Endpoint.open(towards=HOST, config=config) as one,
    ):
        client = await one.connect(HOST, port=nat.port)
        yield Link(nat, client, await two.accept())


async def transfer(source: Peer, target: Peer, *, messages: int, seed: int) -> None:
    payloads = [content(MESSAGE_BYTES + number, seed=seed * 100 + number) for number in range(messages)]
    statuses = asyncio.gather(*(send(source, payload) for payload in payloads))
    arrived = [await receive(target) for _ in payloads]
    assert await statuses == [Status.OK] * messages
    assert sorted(arrived) == sorted(payloads)


@CONFIGS
async def test_rebinding__in_the_middle_of_transfers(config: EndpointConfig) -> None:
    """All ports are replaced, then all ports and the address; no request ends in an error."""
    async with linked(config) as link:
        await link.exchange(messages=2, seed=3)
        for seed, outside in ((5, "127.0.0.2"), (7, "127.0.0.3")):
            before = link.server.stats().rx_pkts
            running = asyncio.create_task(link.exchange(messages=12, seed=seed))
            await until(lambda before=before: link.server.stats().rx_pkts > before + 20)  # type: ignore[misc]
            assert not running.done()
            link.nat.rebind(outside=outside)
            await running
        await until(lambda: len(link.nat.carried) == PATHS)
        await link.exchange(messages=4, seed=9)
        await until(lambda: all(min(carried) > 0 for carried in link.nat.carried.values()))
