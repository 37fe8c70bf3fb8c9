"""srd.tunnel.listener on real sockets of the loopback interface: what clients get, in which order."""

from __future__ import annotations

import asyncio
import ipaddress
import random
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from srd.batch import MessageBatch
from srd.config import EndpointConfig
from srd.endpoint import Endpoint
from srd.message import Message
from srd.peer import Peer
from srd.proto.wire.status import Status
from srd.secure.config import Plain
from srd.tunnel import listener, vnet
from srd.tunnel.frames import CONTROL, HEADER
from srd.tunnel.gateway import Gateway
from srd.tunnel.greeting import Network, OwnAddress, hello, welcome_untrusted
from srd.tunnel.listener import Listener
from srd.tunnel.routing import NetworkRouting
from tests.patience import PATIENCE_S, until
from tests.srd.lossy import HOST, Address, Relay
from tests.srd.tunnel.idle import device, idle_gateway
from tests.srd.tunnel.inner import ipv4, udp

CONFIG = EndpointConfig(security=Plain())
OWN: list[OwnAddress] = [ipaddress.ip_interface("10.88.0.1/24")]
CLIENT = ipaddress.ip_address("10.88.0.2")
WELCOME = [OWN[0].network]
USED = f"{CLIENT} is used by another client"


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


class Client:
    """Notes what it gets: greetings as lists of networks, or the reason of a refusal; packets as their bytes."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.got: list[object] = []
        peer.attach(self)

    async def ask(self) -> None:
        """Ask for the address."""
        await self.peer.send(hello([CLIENT]), immediate=CONTROL)

    async def gets(self, *greetings: object) -> None:
        """Wait until it has got these and nothing else."""
        await until(lambda: self.got == [*greetings])

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
    owner: Listener
    relay: GatedRelay
    port: int

    @asynccontextmanager
    async def client(self, *, behind_relay: bool = False) -> AsyncIterator[Client]:
        """Connect a client that has not said yet what it wants."""
        port = self.relay.port if behind_relay else self.port
        async with Endpoint.open(towards=HOST, config=CONFIG) as endpoint, endpoint.connect(HOST, port) as peer:
            yield Client(peer)


@asynccontextmanager
async def star(*, peers: Mapping[bytes, Sequence[Network]] | None = None) -> AsyncIterator[Star]:
    routing = NetworkRouting()
    with idle_gateway(routing) as gateway:
        async with asyncio.timeout(2 * PATIENCE_S), Endpoint.listen(HOST, 0, config=CONFIG) as endpoint:
            owner = Listener(
                endpoint, device=device(OWN), gateway=gateway, routing=routing, peers=peers, falls_back=False
            )
            gateway.owner = owner
            running = asyncio.create_task(owner.run())
            rng = random.Random(1)
            made = GatedRelay(endpoint.address[1], rng=rng, loss=0.0, delayed=0.0)
            try:
                yield Star(gateway, owner, made, endpoint.address[1])
            finally:
                made.close()
                running.cancel()


def frame(packet: bytes) -> bytes:
    """What is read from an interface, behind room for a header."""
    return bytes(HEADER.size) + vnet.NONE.pack() + packet


async def test_packets__follow_the_greeting_that_is_late() -> None:
    packet = bytes(ipv4(src=str(OWN[0].ip), dst=str(CLIENT)) / udp(dport=7))
    async with star() as made, made.client(behind_relay=True) as client:
        await until(lambda: len(made.gateway.members) == 1)
        [member] = made.gateway.members
        made.relay.is_closed = True
        greeting = asyncio.create_task(client.ask())
        await until(lambda: member.has_joined)
        made.gateway.send_again([frame(packet)])
        sent = len(made.relay.held)
        await until(lambda: len(made.relay.held) >= sent + 4)  # retransmissions: all that is to be sent now has been
        made.relay.open_in_reverse()
        await until(lambda: len(client.got) == 2)
        await greeting
        assert client.got[0] == WELCOME
        assert isinstance(client.got[1], bytes)
        assert client.got[1].endswith(packet)


async def test_an_address__of_a_client_that_answers_is_not_given_away() -> None:
    async with star() as made, made.client() as first, made.client() as second:
        await first.ask()
        await first.gets(WELCOME)
        await second.ask()
        await second.gets(USED, "ended")
        assert not first.peer.ended
        assert made.gateway.counters.refused == 1


async def test_addresses_of_a_key__are_its_newest_session_s() -> None:
    key = b""  # of all, in plain text
    networks = [ipaddress.ip_network("10.88.0.2/32"), ipaddress.ip_network("10.1.0.0/16")]
    async with star(peers={key: networks}) as made, made.client() as first, made.client() as second:
        await first.ask()
        await first.gets(WELCOME)
        await second.ask()
        await second.gets(WELCOME)
        await first.gets(WELCOME, "ended")


async def test_an_address__of_a_client_that_does_not_hear_is_given_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "ANSWER_WITHIN_S", 0.05)
    async with star() as made, made.client(behind_relay=True) as first, made.client() as second:
        await first.ask()
        await first.gets(WELCOME)
        made.relay.is_closed = True
        await second.ask()
        await second.gets(WELCOME)


async def test_two_that_want_the_same_address_at_once__the_second_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both wait for the one that has it, and that it ends."""
    monkeypatch.setattr(listener, "ANSWER_WITHIN_S", PATIENCE_S)
    async with (
        star() as made,
        made.client(behind_relay=True) as first,
        made.client() as second,
        made.client() as third,
    ):
        await first.ask()
        await first.gets(WELCOME)
        made.relay.is_closed = True
        await asyncio.gather(second.ask(), third.ask())
        first.peer.fail("of this test")
        await until(lambda: second.got and third.got)
        assert {str(second.got[0]), str(third.got[0])} == {str(WELCOME), USED}


async def test_newcomers__are_closed_if_too_many_say_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "MAX_NEWCOMERS", 1)
    async with star() as made, made.client() as first:
        await until(lambda: len(made.gateway.members) == 1)
        async with made.client() as second:
            await second.gets("ended")
        await first.ask()
        await first.gets(WELCOME)
        async with made.client() as third:
            await third.ask()
            await third.gets(USED, "ended")


@pytest.mark.parametrize("joins", [True, False])
async def test_a_newcomer__is_not_dismissed_once_it_has_joined_or_left(*, joins: bool) -> None:
    async with star() as made, made.client() as client:
        await until(lambda: len(made.gateway.members) == 1)
        [timer] = made.owner._newcomers.values()
        if joins:
            await client.ask()
            await client.gets(WELCOME)
        else:
            await client.peer.close()
            await until(lambda: not made.gateway.members)
        assert timer.cancelled()
        assert not made.owner._newcomers


async def test_refusals__are_counted_and_few_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    clients = 60
    async with star() as made, Endpoint.open(towards=HOST, config=CONFIG) as endpoint:
        for _ in range(clients):
            peer = await endpoint.connect(HOST, made.port)
            await peer.send(hello([OWN[0].ip]), immediate=CONTROL)
            await peer.wait_ended()
        assert made.gateway.counters.refused == clients
    assert sum("refused" in record.message for record in caplog.records) < clients
