"""A client behind Linux' masquerading: namespaces of a client, a router and a server, joined by veth pairs.

Where the kernel has no masquerading these tests are skipped; those with a NAT in user space (tests/srd/test_nat.py) run
everywhere. The server sends back what it receives, so that both ends send, and the client compares every byte.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from dataclasses import replace as changed
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from pyroute2.netlink.exceptions import NetlinkError
from pyroute2.nftables.expressions import masq
from pyroute2.nftables.main import NFTables

from netns.backends.relay.tap import inside
from netns.programs import tool
from srd.config import EndpointConfig
from srd.endpoint import Endpoint
from srd.errors import PeerError
from srd.peer import Peer
from srd.proto.wire.status import Status
from tests.patience import PATIENCE_S
from tests.srd.loopback import PLAIN, SMALL, content, receive, send

PATHS = SMALL.protocol.paths
PORT = 19_870
MESSAGE_BYTES = 200_000
SERVER, OUTSIDE, OTHER_OUTSIDE, ROUTER, CLIENT = "10.78.2.1", "10.78.2.2", "10.78.2.3", "10.78.1.1", "10.78.1.2"
LIFETIMES = ("nf_conntrack_udp_timeout", "nf_conntrack_udp_timeout_stream")

pytestmark = pytest.mark.root


def ip(*arguments: str, namespace: str) -> None:
    subprocess.run([tool("ip"), "-n", namespace, *arguments], check=True, capture_output=True, text=True)


class Inside(Thread):
    """A thread in a namespace; `result` waits for what its work returns, or raises what it raises."""

    def __init__(self, namespace: str, work: Callable[[], Any]) -> None:
        super().__init__(daemon=True)
        self._namespace, self._work = namespace, work
        self._returned: Any = None
        self.error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            with inside(self._namespace):
                self._returned = self._work()
        except BaseException as error:  # noqa: BLE001 - raised again by `result`
            self.error = error

    def result(self) -> Any:
        self.join(2 * PATIENCE_S)
        assert not self.is_alive()
        if self.error is not None:
            raise self.error
        return self._returned


@dataclass(frozen=True)
class Masquerade:
    """The three namespaces; the router has the address of the client's side, and masquerades on the server's."""

    client: str
    router: str
    server: str

    def build(self) -> None:
        for name in (self.client, self.router, self.server):
            subprocess.run([tool("ip"), "netns", "add", name], check=True, capture_output=True)
        for near, host, far, gateway in ((self.client, CLIENT, "in", ROUTER), (self.server, SERVER, "out", OUTSIDE)):
            ip("link", "add", "eth0", "type", "veth", "peer", "name", far, "netns", self.router, namespace=near)
            for namespace, device, address in ((near, "eth0", host), (self.router, far, gateway)):
                ip("address", "add", f"{address}/24", "dev", device, namespace=namespace)
                ip("link", "set", "dev", device, "up", namespace=namespace)
        ip("route", "add", "default", "via", ROUTER, namespace=self.client)
        Inside(self.router, _masquerade).result()

    def remove(self) -> None:
        for name in (self.client, self.router, self.server):
            subprocess.run([tool("ip"), "netns", "delete", name], check=False, capture_output=True)

    def set_lifetime(self, seconds: int) -> None:
        """Have the kernel forget a mapping that is not used for so long."""

        def write() -> None:
            for name in LIFETIMES:
                _write_sysctl(f"net/netfilter/{name}", seconds)

        Inside(self.router, write).result()

    def rebind(self) -> None:
        """Give the router another external address: the kernel forgets the mappings of the old one."""
        ip("address", "delete", f"{OUTSIDE}/24", "dev", "out", namespace=self.router)
        ip("address", "add", f"{OTHER_OUTSIDE}/24", "dev", "out", namespace=self.router)


def _masquerade() -> None:
    _write_sysctl("net/ipv4/ip_forward", 1)
    nft = NFTables(nfgen_family=2)  # NFPROTO_IPV4
    try:
        nft.table("add", name="nat")
        nft.chain("add", table="nat", name="post", hook="postrouting", type="nat", policy=1, priority=100)
        nft.rule("add", table="nat", chain="post", expressions=(masq(),))
    finally:
        nft.close()


def _write_sysctl(path: str, value: int) -> None:
    Path("/proc/sys", path).write_text(str(value), encoding="ascii")  # of this thread's namespace


@pytest.fixture
def network() -> Iterator[Masquerade]:
    built = Masquerade(*(f"srd-nat-{os.getpid()}-{end}" for end in ("client", "router", "server")))
    try:
        try:
            built.build()
        except NetlinkError as error:
            pytest.skip(f"this kernel has no masquerading: {error}")
        yield built
    finally:
        built.remove()


async def echo(config: EndpointConfig) -> tuple[tuple[str, int], list[int]]:
    """Send back what one client sends, until it closes; return its address, and the packets sent on each path."""
    async with asyncio.timeout(2 * PATIENCE_S), await Endpoint.listen(SERVER, port=PORT, config=config) as endpoint:
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
        await asyncio.sleep(4)  # the kernel's clock
        await exchange(peer, messages=8, seed=100)
        running = asyncio.create_task(exchange(peer, messages=30, seed=200))
        before = peer.stats().rx_pkts
        while peer.stats().rx_pkts < before + 100:  # noqa: ASYNC110 - counters have no event
            await asyncio.sleep(0.001)
        assert not running.done()
        network.rebind()
        await running
        for seed in range(300, 400, 10):  # paths are chosen by chance
            await exchange(peer, messages=8, seed=seed)

    serving = Inside(network.server, lambda: asyncio.run(echo(config)))
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
