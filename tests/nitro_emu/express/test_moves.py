"""A tenant's interface that moves to another card while connections are open: the mapping decides, packet by packet."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.nitro_emu.express.express_cards import ALL, HIGH, LOW, Tenant, connection, vf_of
from tests.nitro_emu.vpc_cards import ControlPlane, vpc_cards
from tests.patience import wait_until
from tests.srd.tunnel.cable import namespaces

pytestmark = pytest.mark.compiled  # cards as processes


@dataclass
class Move:
    """LOW is on card-a. HIGH is on card-b by the first mapping, and on card-c, which has it already, by the next."""

    control_plane: ControlPlane
    low: Tenant
    before: Tenant
    after: Tenant

    def move(self) -> None:
        interfaces = self.control_plane.vpcs["red"]["interfaces"]
        interfaces["card-c-ena-0"] = interfaces.pop("card-b-ena-0") | {"card": "card-c"}
        self.control_plane.push()


@contextmanager
def three_cards(directory: Path) -> Iterator[Move]:
    with ExitStack() as stack:
        names = stack.enter_context(namespaces(3))
        places = dict(zip(("card-a", "card-b", "card-c"), zip(names, (LOW, HIGH, HIGH), strict=True), strict=True))
        wanted = {card: [vf_of(0, "red", address, netns=netns)] for card, (netns, address) in places.items()}
        control_plane, cards = stack.enter_context(vpc_cards(directory, wanted, pushes=False))
        red = control_plane.vpcs["red"]
        red["groups"]["efa"] = {"ingress": ALL, "egress": ALL}
        del red["interfaces"]["card-c-ena-0"]
        control_plane.push()
        tenants = [Tenant(netns, cards[card], "ena_0", address=address) for card, (netns, address) in places.items()]
        yield Move(control_plane, *tenants)


def test_interface__that_moves_is_reached_at_its_new_card_and_the_old_one_drops(tmp_path: Path) -> None:
    with three_cards(tmp_path) as world, connection(world.low, world.before) as connected:
        connected.exchange(1, length=300_000)
        assert world.after.is_silent(LOW), "it is not there yet"
        assert world.after.dropped("no_mapping") > 0
        world.move()
        assert world.low.card.stats("ena_0")["vpc"]["revoked"] == 2, "the peers of both directions"
        dropped = world.before.dropped("no_mapping")
        received = world.low.stats()["ena"]["ena_srd_rx_pkts"]
        connected.server.sendall(b"from the old card")
        wait_until(lambda: world.before.dropped("no_mapping") > dropped)  # the old card drops the flow's next packet
        assert world.before.is_silent(LOW)
        assert world.low.stats()["ena"]["ena_srd_rx_pkts"] == received
        connected.client.sendall(b"x")  # to the new card, whose kernel knows no such connection
        with pytest.raises(ConnectionResetError):
            connected.client.recv(1)
        with connection(world.low, world.after) as anew:
            anew.exchange(2)
        with connection(world.after, world.low) as anew:
            anew.exchange(3)
