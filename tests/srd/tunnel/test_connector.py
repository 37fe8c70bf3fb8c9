"""srd.tunnel.connector: what goes around SRD to a listener that does not answer."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import cast

import pytest

from srd.config import EndpointConfig
from srd.endpoint import Endpoint
from srd.peer import Peer
from srd.secure.config import Plain
from srd.tunnel import connector
from srd.tunnel.connector import Connector
from srd.tunnel.greeting import Network, OwnAddress
from srd.tunnel.rewrite import empty_packet
from srd.tunnel.routing import NetworkRouting
from tests.patience import PATIENCE_S
from tests.srd.tunnel.idle import device, idle_gateway

pytestmark = pytest.mark.root  # SO_RCVBUFFORCE

HOST = "127.0.0.1"
OWN: list[OwnAddress] = [ipaddress.ip_interface("10.88.0.2/24"), ipaddress.ip_interface("fd88::2/64")]
EMPTY = [empty_packet(each.ip.packed) for each in OWN]


class Silent:
    """Two ports, one behind the other: nobody answers at the first; what comes to the second is read."""

    def __init__(self) -> None:
        self.sockets: list[socket.socket] = []
        while len(self.sockets) < 2:
            self.close()
            self.sockets = [self._socket(0)]
            try:
                self.sockets.append(self._socket(self.port + 1))
            except OSError:
                continue
        self.sockets[1].settimeout(0)

    @staticmethod
    def _socket(port: int) -> socket.socket:
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        sock.bind((HOST, port))
        return sock

    @property
    def port(self) -> int:
        return int(self.sockets[0].getsockname()[1])

    async def read(self) -> bytes:
        """Return the next datagram that goes around SRD."""
        async with asyncio.timeout(PATIENCE_S):
            return await asyncio.get_running_loop().sock_recv(self.sockets[1], 1 << 16)

    def close(self) -> None:
        for sock in self.sockets:
            sock.close()


@asynccontextmanager
async def connecting(
    to: Silent, *, host: str = HOST, express_for: Sequence[Network] = ()
) -> AsyncIterator[tuple[Connector, NetworkRouting]]:
    """A connector that tries, for ever."""
    routing = NetworkRouting(express_for=express_for)
    endpoint_config = EndpointConfig(security=Plain())
    with idle_gateway(routing) as gateway:
        async with Endpoint.open(towards=HOST, config=endpoint_config) as endpoint:
            made = Connector(
                endpoint,
                target=(host, to.port, None),
                device=device(OWN),
                gateway=gateway,
                routing=routing,
                routes=(),
                falls_back=True,
                on_connected=lambda _: None,
            )
            running = asyncio.create_task(made.run())
            try:
                yield made, routing
            finally:
                running.cancel()
                await asyncio.wait({running})
                assert routing.encapsulation is not None
                routing.encapsulation.close()
                to.close()


@pytest.mark.parametrize("interval_s", [0.01, 1000.0], ids=["every interval", "at once"])
async def test_fallback__says_where_it_is(monkeypatch: pytest.MonkeyPatch, interval_s: float) -> None:
    monkeypatch.setattr(connector, "FALL_BACK_AFTER_S", 0.1)
    monkeypatch.setattr(connector, "KEEP_ALIVE_S", interval_s)
    silent = Silent()
    async with connecting(silent):
        for _ in range(3 if interval_s < 1 else 1):
            assert [await silent.read() for _ in EMPTY] == EMPTY


async def test_express_for__says_where_it_is_while_srd_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connector, "FALL_BACK_AFTER_S", 1000.0)
    monkeypatch.setattr(connector, "KEEP_ALIVE_S", 0.01)
    silent = Silent()
    async with connecting(silent, express_for=[OWN[1].network]):
        for _ in range(3):
            assert [await silent.read() for _ in EMPTY] == EMPTY


async def test_no_fallback_yet__says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connector, "FALL_BACK_AFTER_S", 0.2)
    monkeypatch.setattr(connector, "KEEP_ALIVE_S", 0.001)
    silent = Silent()
    started_at = asyncio.get_running_loop().time()
    async with connecting(silent):
        await silent.read()
        assert asyncio.get_running_loop().time() >= started_at + 0.2


async def test_fallback__leads_to_an_address_with_a_route_and_follows_srd(
    hosts: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a name with several addresses."""
    monkeypatch.setattr(connector, "FALL_BACK_AFTER_S", 0.0)
    hosts(name=["255.255.255.255", HOST, "127.0.0.2"])
    silent = Silent()
    async with connecting(silent, host="name") as (made, routing):
        assert [await silent.read() for _ in EMPTY] == EMPTY
        for host, leads_to in (("127.0.0.2", "127.0.0.2"), (f"::ffff:{HOST}", HOST), ("192.0.2.7", HOST)):
            made._follow(cast("Peer", SimpleNamespace(address=(host, silent.port))))
            assert routing.encapsulation is not None
            assert routing.encapsulation.host == leads_to
