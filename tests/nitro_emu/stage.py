"""Two tenants with equal addresses in two VPCs on the same two cards, and a third card that an attacker has.

card-a  efa_0 red 172.31.0.5     efa_1 blue 172.31.0.6
card-b  efa_0 red 172.31.0.6     efa_1 blue 172.31.0.5
card-m  blue 172.31.0.9, allowed; red 172.31.0.8, in no group
"""

from __future__ import annotations

import base64
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from nitro_emu.card.control import ask
from nitro_emu.efa.verbs import AddressHandle, CompStatus
from tests.nitro_emu.cards import GUARD, Card, Tenant, exchange
from tests.nitro_emu.hostile_card import HostileCard
from tests.nitro_emu.processes import loopback_address
from tests.nitro_emu.vpc_cards import ControlPlane, Vf, vpc_cards
from tests.srd.cli.processes import Process

OK: Final = CompStatus.OK
LOW, HIGH = "172.31.0.5", "172.31.0.6"
"""The addresses that both VPCs have."""
MALLORY, OUTCAST = "172.31.0.9", "172.31.0.8"
"""The attacker's: in VPC blue, where it is in the group; in VPC red, where it is in none."""
CARDS: Final = {
    "card-a": (Vf("efa_0", "red", LOW), Vf("efa_1", "blue", HIGH)),
    "card-b": (Vf("efa_0", "red", HIGH), Vf("efa_1", "blue", LOW)),
}
RED_PORT, BLUE_PORT = 19875, 19876
STRANGER: Final = Path(__file__).with_name("stranger.py")


def gid(address: str) -> bytes:
    return Vf("", "", address).gid


def push_to(card: Card, document: bytes) -> dict[str, Any]:
    """Give one card a mapping."""
    return ask(card.run_dir, "map", document=base64.b64encode(document).decode())


def alarms(card: Card) -> Counter[str]:
    return Counter(ask(card.run_dir, "stats")["alarms"])


class Pair:
    """Two tenants in one VPC, which exchange messages; each byte of the receiver's memory is compared."""

    def __init__(self, left: Tenant, right: Tenant, *, first: int) -> None:
        """`first`: the number of the first message, so that no two pairs have the same bytes."""
        self.left, self.right = left, right
        self.ahs = AddressHandle(left.pd, gid=right.gid), AddressHandle(right.pd, gid=left.gid)
        self.exchanged = 0
        self._number = first

    def exchange(self) -> None:
        """Send a message there and one back."""
        for sender, receiver, ah in (
            (self.left, self.right, self.ahs[0]),
            (self.right, self.left, self.ahs[1]),
        ):
            self._number += 1
            self.exchanged += 1
            exchange(sender, receiver, number=self._number, ah=ah)


class Bystander:
    """A tenant that waits for messages which nobody may send: posted buffers, registered memory, nothing else."""

    RECEIVES: Final = 8

    def __init__(self, tenant: Tenant) -> None:
        self.tenant = tenant
        for number in range(self.RECEIVES):
            tenant.receive(number, tenant.sge(1000, at=number * 1000))

    def assert_untouched(self) -> None:
        assert not self.tenant.cq.poll(64), "a message of somebody else"
        assert (self.tenant.bytes == GUARD).all(), "somebody else has written to a tenant's memory"


@dataclass
class Stage:
    """The cards, their tenants, and the attacker's card."""

    control_plane: ControlPlane
    cards: dict[str, Card]
    evil: HostileCard
    tenants: list[Tenant] = field(default_factory=list)

    @property
    def target(self) -> Card:
        """The card that is attacked."""
        return self.cards["card-b"]

    @property
    def host(self) -> str:
        return str(self.control_plane.cards["card-b"]["address"])

    def address(self, card: str) -> str:
        return str(self.control_plane.cards[card]["address"])

    def tenant(self, card: str, vf: str) -> Tenant:
        self.tenants.append(Tenant(self.cards[card], vf))
        return self.tenants[-1]

    def pair(self, vpc: str, *, first: int) -> Pair:
        vf = "efa_0" if vpc == "red" else "efa_1"
        return Pair(self.tenant("card-a", vf), self.tenant("card-b", vf), first=first)

    def bystander(self, vf: str) -> Bystander:
        return Bystander(self.tenant("card-b", vf))

    def vpc_counters(self, vf: str) -> dict[str, int]:
        found: dict[str, int] = self.target.stats(vf)["vpc"]
        return found

    def close_tenants(self) -> None:
        while self.tenants:
            self.tenants.pop().close()


@contextmanager
def stage(directory: Path, *, more: Mapping[str, str] | None = None) -> Iterator[Stage]:
    """Run the cards, for the block; `more`: further settings of each card."""
    with ExitStack() as running:
        key = X25519PrivateKey.generate()
        evil = running.enter_context(HostileCard(loopback_address(), key=key, home=directory))
        control_plane, cards = running.enter_context(vpc_cards(directory, CARDS, pushes=False, more=more or ""))
        vfs = Vf("efa_0", "blue", MALLORY), Vf("efa_1", "red", OUTCAST, groups=("none",))
        control_plane.add("card-m", address=evil.address, public_key=evil.public_key, run_dir=directory, vfs=vfs)
        del control_plane.run_dirs["card-m"]  # nobody listens there
        # The groups would let blue's tenants reach red's: only the VPCs, which are not peered, keep them apart.
        for vpc, direction in (("red", "ingress"), ("blue", "egress")):
            everybody = {"protocol": "all", "cidr": "172.31.0.0/16"}
            control_plane.vpcs[vpc]["groups"]["efa"][direction].append(everybody)
        control_plane.push()
        made = Stage(control_plane, cards, evil)
        running.callback(made.close_tenants)
        yield made


@contextmanager
def stranger(task: dict[str, Any]) -> Iterator[Process]:
    """Run an attacker's process; see `stranger`."""
    with tempfile.NamedTemporaryFile("w+") as file:
        json.dump(task, file)
        file.flush()
        with Process([sys.executable, str(STRANGER), file.name]) as process:
            yield process


def while_running(process: Process, work: Callable[[], None]) -> dict[str, Any]:
    """Do some work again and again until the attacker's process has ended; return its last event."""
    while process.popen.poll() is None:
        work()
    done = process.event("done")
    assert process.wait() == 0, process.stderr.all()
    return done
