"""A tunnel whose clients are behind a NAT: connections inside survive a new address of the router."""

from __future__ import annotations

import asyncio
import ipaddress
from contextlib import ExitStack
from pathlib import Path

import pytest
from scapy.packet import Raw

from netns.backends.relay.tap import inside
from srd.tunnel.encapsulation import Encapsulation
from tests.masquerade import OUTSIDE, SERVER, masquerade
from tests.srd.tunnel.inner import V4, ipv4, udp
from tests.srd.tunnel.test_encapsulation import Kernel, port_of, send
from tests.srd.tunnel.two_ends import Ends

pytestmark = pytest.mark.root


def test_tunnel__two_clients_behind_one_nat(tmp_path: Path) -> None:
    with masquerade(clients=2) as network, ExitStack() as stack:
        homes = [tmp_path / f"home{number}" for number in range(3)]
        made = Ends([network.server, *network.clients], homes, (), stack, [None] * 3, SERVER)
        made.listen()
        for client in (1, 2):
            made.connect(client)
        with made.connection(client=1) as one, made.connection(client=2) as two:
            for connection in (one, two):
                connection.exchange(2)
            network.rebind()
            for connection in (one, two):
                connection.exchange(2)
        stats = made.stats(0)
        peers = stats["peers"]
        assert len(peers) == 2
        assert stats["dropped"].get("forged_source", 0) == 0
        assert all(OUTSIDE in peer["address"] for peer in peers), "where it has met them"


def test_encapsulation__keeps_its_mapping_and_says_where_the_next_one_is() -> None:
    """A mapping ends in a second, and all are forgotten then; the listener sends first each time."""
    packet = bytes(ipv4(src=V4[0], dst=V4[1]) / udp() / Raw(b"from the listener"))

    async def test() -> None:
        here, there = Kernel(), Kernel()
        with inside(network.server):
            listener = stack.enter_context(here.listening(SERVER))
        with inside(network.client):
            client = stack.enter_context(there.connected((SERVER, port_of(listener))))
        keeping = asyncio.create_task(announcing(client))
        await here.learned(1)
        network.set_lifetime(1)
        await network.outlive_a_mapping()
        send(listener, packet)
        assert await there.read() == packet
        before = here.kept_sent
        network.rebind()
        await here.learned(before + 1)
        send(listener, packet)
        assert await there.read() == packet
        keeping.cancel()

    async def announcing(client: Encapsulation) -> None:
        while True:
            client.announce([ipaddress.ip_address(V4[1])])
            await asyncio.sleep(0.2)

    with masquerade() as network, ExitStack() as stack:
        asyncio.run(test())
