"""srd.tunnel.listener on real sockets of the loopback interface: what clients get, in which order."""

from __future__ import annotations

import asyncio
import ipaddress
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from srd.batch import MessageBatch
from srd.config import EndpointConfig
from srd.endpoint import Endpoint
from srd.message import Message
from srd.peer import Peer
from srd.proto.wire.status import Status
from srd.secure.config import Plain
from srd.tunnel import vnet
from srd.tunnel.config import TunnelConfig
from srd.tunnel.frames import CONTROL, HEADER
from srd.tunnel.gateway import Gateway
from srd.tunnel.greeting import OwnAddress, hello, welcome_untrusted
from srd.tunnel.listener import Listener
from srd.tunnel.routing import NetworkRouting
from srd.tunnel.tun import NO_OFFLOAD, Tun
from tests.patience import PATIENCE_S
from tests.srd.lossy import HOST, Address, Relay
from tests.srd.tunnel.inner import ipv4, udp

CONFIG = EndpointConfig(security=Plain())
OWN: list[OwnAddress] = [ipaddress.ip_interface("10.88.0.1/24")]
CLIENT = ipaddress.ip_address("10.88.0.2")


class GatedRelay(Relay):
    """Holds what comes from the server while its gate is closed."""

    def __init__(self, server_port: int, **options: Any) -> None:
        super().__init__(server_port, **options)
        self.is_closed = False
        self.held: list[tuple[Address, bytes]] = []

    def _from_server(self, client: Address, data: bytes, address: Address) -> None:
        if self.is_closed:
            self.held.append((client, data))
        else:
            super()._from_server(client, data, address)

    def open_in_reverse(self) -> None:
        """Let pass what was held, the last first."""
        self.is_closed = False
        for client, data in reversed(self.held):
            super()._from_server(client, data, (HOST, 0))
        self.held.clear()


class Device:
    """An interface that needs nothing."""

    addresses = OWN

    def fit_mtu(self, packet_bytes: int) -> None:
        pass


class Client:
    """Notes what it gets: greetings as lists of networks, or the reason of a refusal; packets as their bytes."""

    def __init__(self) -> None:
        self.got: list[object] = []

    def on_message(self, message: Message | MessageBatch) -> None:
        data = b"".join(map(bytes, message.rows())) if isinstance(message, MessageBatch) else message.data()
        self.got.append(data if message.immediate is None else welcome_untrusted(data))
        if isinstance(message, MessageBatch):
            message.release()

    def on_completion(self, request: int, *, status: Status) -> None:
        pass

    def on_ended(self) -> None:
        self.got.append("ended")


@dataclass(frozen=True)
class Star:
    """A listener without an interface, and what is between it and its clients."""

    gateway: Gateway
    relay: GatedRelay
    endpoint: Endpoint

    @asynccontextmanager
    async def client(self) -> AsyncIterator[tuple[Client, Peer]]:
        """Connect a client that has not said yet what it wants."""
        async with (
            Endpoint.open(towards=HOST, config=CONFIG) as endpoint,
            endpoint.connect(HOST, self.relay.port) as peer,
        ):
            client = Client()
            peer.attach(client)
            yield client, peer


@asynccontextmanager
async def star() -> AsyncIterator[Star]:
    def fail(error: Exception) -> None:
        raise error

    async with asyncio.timeout(2 * PATIENCE_S), Endpoint.listen(HOST, 0, config=CONFIG) as endpoint:
        routing = NetworkRouting()
        tun = Tun((), index=0, offload=NO_OFFLOAD)
        gateway = Gateway(tun, config=TunnelConfig(), routing=routing, on_failure=fail)
        device: Any = Device()
        listener = Listener(endpoint, device=device, gateway=gateway, routing=routing, peers=None, falls_back=False)
        gateway.owner = listener
        running = asyncio.create_task(listener.run())
        rng = random.Random(1)
        made = GatedRelay(endpoint.address[1], rng=rng, loss=0.0, delayed=0.0)
        try:
            yield Star(gateway, made, endpoint)
        finally:
            made.close()
            running.cancel()


async def until(is_true: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not is_true():  # noqa: ASYNC110 - counters have no event
            await asyncio.sleep(0.001)


def frame(packet: bytes) -> bytes:
    """What is read from an interface, behind room for a header."""
    return bytes(HEADER.size) + vnet.NONE.pack() + packet


async def test_packets__follow_the_greeting_that_is_late() -> None:
    packet = bytes(ipv4(src=str(OWN[0].ip), dst=str(CLIENT)) / udp(dport=7))
    async with star() as made, made.client() as (client, peer):
        await until(lambda: len(made.gateway.members) == 1)
        [member] = made.gateway.members
        made.relay.is_closed = True
        greeting = asyncio.create_task(peer.send(hello([CLIENT]), immediate=CONTROL))
        await until(lambda: member.has_joined)
        made.gateway.send_again([frame(packet)])
        sent = len(made.relay.held)
        await until(lambda: len(made.relay.held) >= sent + 4)  # retransmissions: all that is to be sent now has been
        made.relay.open_in_reverse()
        await until(lambda: len(client.got) == 2)
        await greeting
        assert client.got[0] == [OWN[0].network]
        assert isinstance(client.got[1], bytes)
        assert client.got[1].endswith(packet)
