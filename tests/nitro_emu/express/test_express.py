"""Virtual functions of kind ENA Express on real cards: unmodified programs in the namespaces of two tenants."""

from __future__ import annotations

import copy
import re
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from nitro_emu.card.control import ask
from tests.nitro_emu.express.express_cards import (
    ALL,
    HIGH,
    HIGH_IPV6,
    LOW,
    LOW_IPV6,
    SUBNET_IPV6,
    Tenant,
    connection,
    sleeping,
    vf_of,
)
from tests.nitro_emu.vpc_cards import ControlPlane, vpc_cards
from tests.patience import wait_until
from tests.srd.tunnel.cable import ip, namespaces

pytestmark = pytest.mark.compiled  # cards as processes

VPCS = ("red", "blue")
"""Both have the addresses LOW and HIGH."""


@dataclass
class World:
    """Two cards; of each VPC, LOW is on card-a and HIGH on card-b, which knows its namespaces by processes in them."""

    control_plane: ControlPlane
    tenants: dict[tuple[str, str], Tenant]

    def pair(self, vpc: str) -> tuple[Tenant, Tenant]:
        return self.tenants[vpc, LOW], self.tenants[vpc, HIGH]

    @contextmanager
    def other_map(self) -> Iterator[dict[str, Any]]:
        """Change VPC red in the block and push it; afterwards it is as it was."""
        vpcs = self.control_plane.vpcs
        before = copy.deepcopy(vpcs["red"])
        try:
            yield vpcs["red"]
        finally:
            vpcs["red"] = before
            self.control_plane.push()


@contextmanager
def two_cards(directory: Path) -> Iterator[World]:
    """A world without a mapping."""
    with ExitStack() as stack:
        names = stack.enter_context(namespaces(4))
        places: list[str | int] = [*names[:2], *(stack.enter_context(sleeping(each)) for each in names[2:])]
        wanted = {
            card: [vf_of(number, vpc, address, netns=place) for number, (vpc, place) in enumerate(where)]
            for card, address, where in (
                ("card-a", LOW, zip(VPCS, places[:2], strict=True)),
                ("card-b", HIGH, zip(VPCS, places[2:], strict=True)),
            )
        }
        control_plane, cards = stack.enter_context(vpc_cards(directory, wanted, pushes=False))
        tenants = {}
        for number, vpc in enumerate(VPCS):
            control_plane.vpcs[vpc]["groups"]["efa"] = {"ingress": ALL, "egress": ALL}
            for address, card, netns in ((LOW, "card-a", names[number]), (HIGH, "card-b", names[2 + number])):
                tenants[vpc, address] = Tenant(netns, cards[card], f"ena_{number}", address=address)
        yield World(control_plane, tenants)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with two_cards(tmp_path_factory.mktemp("world")) as made:
        assert made.tenants["red", LOW].is_silent(HIGH), "there is no mapping yet"
        assert made.tenants["red", LOW].dropped("no_mapping") > 0
        made.control_plane.push()
        yield made


def stream(left: Tenant, right: Tenant, *, number: int, length: int = 3_000_000) -> None:
    """Send bytes both ways over one TCP connection from left to right, and compare all of them."""
    with connection(left, right) as connected:
        connected.exchange(number, length=length)


def test_programs__of_two_vpcs_with_the_same_addresses(world: World) -> None:
    red, blue = world.pair("red"), world.pair("blue")
    shown = ip("address", "show", "eth0", netns=red[0].netns)
    assert f"inet {LOW}/16" in shown
    assert "mtu 8900" in shown
    for left, right in (red, blue):
        assert left.ping(HIGH)
        assert right.ping(LOW)
    streams = [threading.Thread(target=stream, args=pair, kwargs={"number": n}) for n, pair in enumerate((red, blue))]
    for each in streams:
        each.start()
    for each in streams:
        each.join()
    assert red[0].ping(HIGH, "-s", "60000"), "in fragments"
    before = blue[1].stats()["ena"]["ena_srd_rx_pkts"]
    assert red[0].ping(HIGH)
    assert blue[1].stats()["ena"]["ena_srd_rx_pkts"] == before
    for tenant in (*red, *blue):
        found = tenant.stats()
        assert found["dropped"].keys() <= {"queue", "no_mapping"}, "CoDel's only, once there was a mapping"
        assert found["ena"]["ena_srd_tx_pkts"] == found["ena"]["ena_srd_eligible_tx_pkts"] > 0


def test_programs__with_addresses_of_ipv6(tmp_path: Path) -> None:
    with ExitStack() as stack:
        names = stack.enter_context(namespaces(2))
        wanted = {
            card: [vf_of(0, "red", address, netns=netns)]
            for card, address, netns in zip(("card-a", "card-b"), (LOW_IPV6, HIGH_IPV6), names, strict=True)
        }
        control_plane, cards = stack.enter_context(vpc_cards(tmp_path, wanted, pushes=False))
        red = control_plane.vpcs["red"]
        red["subnets"] = {"a": SUBNET_IPV6}
        red["groups"]["efa"] = {"ingress": ALL, "egress": ALL}
        control_plane.push()
        left = Tenant(names[0], cards["card-a"], "ena_0", address=LOW_IPV6)
        right = Tenant(names[1], cards["card-b"], "ena_0", address=HIGH_IPV6)
        stream(left, right, number=0)
        stream(right, left, number=1)
        assert left.ping(HIGH_IPV6)
        assert left.ping(HIGH_IPV6, "-s", "60000"), "in fragments"
        for tenant in (left, right):
            found = tenant.stats()
            # CoDel's only, and a frame that overtook the other card's introduction: SRD delivers out of order.
            assert found["dropped"].keys() <= {"queue", "remote_error_bad_length"}
            assert found["ena"]["ena_srd_tx_pkts"] == found["ena"]["ena_srd_eligible_tx_pkts"] > 0


def test_address_of_another_vpc__is_never_reached(world: World) -> None:
    left, other = world.tenants["red", LOW], world.tenants["blue", HIGH]
    with world.other_map() as red:
        del red["interfaces"]["card-b-ena-0"]
        world.control_plane.push()
        before = other.stats()["ena"]["ena_srd_rx_pkts"]
        assert left.is_silent(HIGH), "only VPC blue has it now"
        assert left.dropped("no_interface") > 0
        assert other.stats()["ena"]["ena_srd_rx_pkts"] == before
    assert left.ping(HIGH)


def is_refused(left: Tenant, port: int) -> bool:
    """Whether a connection attempt is not answered; it is repeated once, after a second."""
    with left.stream_socket() as client:
        client.settimeout(1.5)
        try:
            client.connect((HIGH, port))
        except TimeoutError:
            return True
    return False


def test_security_groups__of_inner_packets(world: World) -> None:
    left, right = world.pair("red")
    with world.other_map() as red:
        red["groups"]["client"] = {"egress": [{"protocol": "tcp", "ports": "80-81", "group": "server"}]}
        red["groups"]["server"] = {"ingress": [{"protocol": "tcp", "ports": 80, "group": "client"}]}
        red["interfaces"]["card-a-ena-0"]["groups"] = ["client"]
        red["interfaces"]["card-b-ena-0"]["groups"] = ["server"]
        world.control_plane.push()
        dropped = left.dropped("security_group"), right.dropped("security_group")
        stream(left, right, number=1)
        assert (left.dropped("security_group"), right.dropped("security_group")) == dropped
        with right.listener(82):
            assert is_refused(left, 82), "no egress rule"
            assert left.dropped("security_group") > dropped[0]
            assert right.dropped("security_group") == dropped[1]
        with right.listener(81):
            assert is_refused(left, 81), "no ingress rule"
            assert right.dropped("security_group") > dropped[1]
        assert right.is_silent(LOW), "no egress rule of the server's"


def test_rule__that_is_withdrawn_stops_what_is_open_and_what_is_new(world: World) -> None:
    left, right = world.pair("red")
    assert left.ping(HIGH)
    with connection(left, right) as connected, world.other_map() as red:
        client, server = connected.client, connected.server
        client.sendall(b"before")
        assert server.recv(16) == b"before"
        red["groups"]["efa"]["ingress"] = []
        world.control_plane.push()
        dropped = right.dropped("security_group")
        client.sendall(b"after")
        wait_until(lambda: right.dropped("security_group") > dropped)  # the flow's next packet is judged again
        assert left.is_silent(HIGH)
        red["groups"]["efa"]["ingress"] = ALL
        world.control_plane.push()
        assert server.recv(16) == b"after", "TCP has sent it again"


def test_source__that_is_not_the_interface_s_is_dropped(world: World) -> None:
    left, right = world.pair("red")
    ip("address", "add", "172.31.0.99/32", "dev", "eth0", netns=left.netns)
    before = right.stats()["ena"]["ena_srd_rx_pkts"]
    assert left.is_silent(HIGH, "-I", "172.31.0.99")
    assert left.dropped("spoofed_source") > 0
    assert right.stats()["ena"]["ena_srd_rx_pkts"] == before
    assert left.ping(HIGH)


def test_interface__that_its_tenant_deletes_harms_no_other_and_nothing_is_left_of_a_killed_card(tmp_path: Path) -> None:
    with two_cards(tmp_path) as world:
        world.control_plane.push()
        left, right = world.pair("red")
        assert left.ping(HIGH)
        ip("link", "delete", "eth0", netns=left.netns)
        status = left.card.run_dir
        wait_until(lambda: ask(status, "status")["vfs"]["ena_0"]["interface"] is None)  # the card notices its end
        assert right.is_silent(LOW)
        assert left.dropped("down") > 0
        neighbour, other = world.pair("blue")
        stream(neighbour, other, number=3, length=100_000)
        left.card.kill()
        shown = ip("address", netns=neighbour.netns) + ip("route", netns=neighbour.netns)
        assert not re.search(r"eth1|172\.31", shown)
