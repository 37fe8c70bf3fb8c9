"""A client behind Linux' masquerading: namespaces of a client, a router and a server, joined by veth pairs.

Where the kernel has no masquerading these tests are skipped; those with a NAT in user space (tests/srd/test_nat.py) run
everywhere. The server sends back what it receives, so that both ends send, and the client compares every byte.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import replace as changed
from threading import Event
from typing import Any

import pytest

from srd.config import EndpointConfig
from srd.endpoint import Endpoint
from srd.errors import PeerError
from srd.peer import Peer
from srd.proto.wire.status import Status
from tests.masquerade import OUTSIDE, SERVER, Inside, Masquerade, masquerade
from tests.patience import PATIENCE_S, until
from tests.srd.loopback import PLAIN, SMALL, content, receive, send

PATHS = SMALL.protocol.paths
PORT = 19_870
MESSAGE_BYTES = 200_000

pytestmark = pytest.mark.root


@pytest.fixture
def network() -> Iterator[Masquerade]:
    with masquerade() as built:
        yield built


async def echo(config: EndpointConfig, listens: Event) -> tuple[tuple[str, int], list[int]]:
    """Send back what one client sends, until it closes; return its address, and the packets sent on each path."""
    async with asyncio.timeout(2 * PATIENCE_S), await Endpoint.listen(SERVER, port=PORT, config=config) as endpoint:
        listens.set()
        peer = await endpoint.accept()
        sending = set[asyncio.Task[Status]]()
        try:
            while True:
                sending.add(asyncio.create_task(send(peer, await receive(peer))))
        except PeerError as error:
            if error.status is not Status.OK:  # else the client has closed it
                raise
        assert {await task for task in sending} == {Status.OK}
        return peer.address, [path.counters.packets for path in peer.paths[:PATHS]]


async def exchange(peer: Peer, *, messages: int, seed: int) -> None:
    payloads = [content(MESSAGE_BYTES + number, seed=seed + number) for number in range(messages)]
    statuses = asyncio.gather(*(send(peer, payload) for payload in payloads))
    arrived = [await receive(peer) for _ in payloads]
    assert await statuses == [Status.OK] * messages
    assert sorted(arrived) == sorted(payloads)


async def connected(config: EndpointConfig, use: Callable[[Peer], Coroutine[Any, Any, None]]) -> list[int]:
    """Use a peer of the server; return the packets sent on each path."""
    async with asyncio.timeout(2 * PATIENCE_S), await Endpoint.open(towards=SERVER, config=config) as endpoint:
        peer = await endpoint.connect(SERVER, port=PORT)
        await use(peer)
        return [path.counters.packets for path in peer.paths[:PATHS]]


@pytest.mark.parametrize("config", [PLAIN, SMALL], ids=["plain", "secure"])
def test_masquerading__all_paths_both_ways_idle_beyond_the_lifetime_and_rebinding(
    network: Masquerade, config: EndpointConfig
) -> None:
    config = changed(config, protocol=changed(config.protocol, nat_keepalive_s=0.5))

    async def use(peer: Peer) -> None:
        await exchange(peer, messages=8, seed=1)
        network.set_lifetime(2)
        await network.outlive_a_mapping()
        await exchange(peer, messages=8, seed=100)
        running = asyncio.create_task(exchange(peer, messages=30, seed=200))
        before = peer.stats().rx_pkts
        await until(lambda: peer.stats().rx_pkts >= before + 100)
        assert not running.done()
        network.rebind()
        await running
        for seed in range(300, 400, 10):  # paths are chosen by chance
            await exchange(peer, messages=8, seed=seed)

    listens = Event()
    serving = Inside(network.server, lambda: asyncio.run(echo(config, listens)))
    assert listens.wait(PATIENCE_S), serving.error  # before that a client is told that nothing listens there
    connecting = Inside(network.client, lambda: asyncio.run(connected(config, use)))
    for end in (serving, connecting):
        end.join(2 * PATIENCE_S)
    errors = [end.error for end in (serving, connecting)]
    assert errors == [None, None], "either may be the cause of the other"
    sent_by_client = connecting.result()
    address, sent_by_server = serving.result()
    assert address[0] == OUTSIDE, "the server has seen the router's address"
    assert min(sent_by_client) > 0
    assert min(sent_by_server) > 0
