"""Live updates of confined cards with tenants' interfaces: programs notice an outage, and nothing else."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from nitro_emu.card.control import ask
from nitro_emu.errors import CardError
from tests.nitro_emu.cards import Card
from tests.nitro_emu.express.express_cards import ALL, HIGH, LOW, Tenant, connection, vf_of
from tests.nitro_emu.trusted_cards import Site
from tests.nitro_emu.vpc_cards import ControlPlane
from tests.patience import wait_until
from tests.srd.tunnel.cable import ip, namespaces

pytestmark = pytest.mark.compiled  # cards as processes


@dataclass
class World:
    """Of VPC red LOW is on card-a and HIGH on card-b, which is the one that is updated."""

    site: Site
    left: Tenant
    right: Tenant

    def new_version(self, *, interface: str = "") -> str:
        """Change the settings of card-b, also of its interface if that is given; return the manifest to update to."""
        site = self.site
        vf = site.vfs["card-b"]
        site.vfs = {**site.vfs, "card-b": replace(vf, more=vf.more.replace("}", f"{interface}}}"))}
        site.configure("card-b", more="log_level: debug\n")
        return str(site.sign("card-b", version=2, output=site.directory / "new.manifest"))

    def update(self, manifest: str) -> None:
        """Have card-b replaced, and give the new program a mapping, as the control plane does."""
        assert ask(self.card.run_dir, "update", manifest=manifest) == {"version": 2}
        self.card.process.event("ready")
        self.site.control_plane.push()

    @property
    def card(self) -> Card:
        return self.right.card

    @property
    def interface(self) -> str | None:
        """Its name, by what the card says."""
        name: str | None = ask(self.card.run_dir, "status")["vfs"]["ena_0"]["interface"]
        return name

    @property
    def number(self) -> int:
        """Of the interface in the kernel."""
        found: list[dict[str, Any]] = json.loads(ip("-j", "link", "show", "eth0", netns=self.right.netns))
        return int(found[0]["ifindex"])


@contextmanager
def world_of(directory: Path, *, is_one_way: bool = False) -> Iterator[World]:
    """`is_one_way`: HIGH may be connected to, and begins nothing."""
    with ExitStack() as stack:
        names = stack.enter_context(namespaces(2))
        places = dict(zip(("card-a", "card-b"), zip(names, (LOW, HIGH), strict=True), strict=True))
        vfs = {card: vf_of(0, "red", address, netns=netns) for card, (netns, address) in places.items()}
        site = Site(directory, ControlPlane(directory), vfs=vfs)
        red = site.control_plane.vpcs["red"]
        red["groups"]["efa"] = {"ingress": ALL, "egress": ALL}
        red["groups"]["server"] = {"ingress": [{"protocol": "tcp", "ports": 80, "cidr": "0.0.0.0/0"}]}
        if is_one_way:
            red["interfaces"]["card-b-ena-0"]["groups"] = ["server"]
        for name in vfs:
            site.configure(name)
            site.sign(name)
        cards = stack.enter_context(site.running())
        site.control_plane.push()
        yield World(
            site, *(Tenant(netns, cards[card], "ena_0", address=address) for card, (netns, address) in places.items())
        )


def test_update__keeps_the_interface_and_its_connections(tmp_path: Path) -> None:
    with world_of(tmp_path) as world, connection(world.left, world.right) as connected:
        connected.exchange(1, length=300_000)
        number = world.number
        manifest = world.new_version()
        transfer = threading.Thread(target=connected.exchange, args=(2,), kwargs={"length": 60_000_000})
        transfer.start()
        world.update(manifest)
        transfer.join()
        connected.exchange(3, length=300_000)
        assert (world.number, world.interface) == (number, "eth0")
        with connection(world.right, world.left) as anew:
            anew.exchange(4, length=300_000)


@pytest.mark.long
def test_update__keeps_the_flows_by_which_answers_pass(tmp_path: Path) -> None:
    """After it, only the end that may begin nothing sends."""
    with world_of(tmp_path, is_one_way=True) as world, connection(world.left, world.right) as connected:
        connected.exchange(1, length=300_000)
        world.update(world.new_version())
        connected.server.sendall(b"an answer")
        assert connected.client.recv(16) == b"an answer"
        assert world.right.is_silent(LOW), "it still begins nothing"


@pytest.mark.long
def test_update__of_a_card_whose_tenant_has_deleted_the_interface_goes_on_without_it(tmp_path: Path) -> None:
    with world_of(tmp_path) as world:
        ip("link", "delete", "eth0", netns=world.right.netns)
        wait_until(lambda: world.interface is None)  # the card notices its end
        world.update(world.new_version())
        wait_until(lambda: world.interface is None)  # it is not made again


@pytest.mark.long
def test_update__to_other_settings_of_an_interface_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    with world_of(tmp_path) as world, connection(world.left, world.right) as connected:
        manifest = world.new_version(interface=", mtu: 1400")
        with pytest.raises(CardError, match="ena_0: its interface is new or has other settings"):
            ask(world.card.run_dir, "update", manifest=manifest)
        connected.exchange(1, length=300_000)
