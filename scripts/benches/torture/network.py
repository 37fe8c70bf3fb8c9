"""The network of a scenario: runs commands at its hosts, and injects faults into its links.

Loopback needs no set-up. The others are labs of netns: hosts around one router, with an MTU per link, or two leaves and
two spines with shaped links. Host 0 receives, the next ones send, and the last one is for the attackers.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final, Protocol

from netns.backends.kernel.netlink import apply
from netns.errors import LabError
from netns.faults.faults import Failure, fail, repair
from netns.lab.lab import Lab
from netns.lab.operations import SetOffloads
from netns.netem.shape import Shape
from netns.topology.model import Link, Switch, Topology
from scripts.benches.torture.plans import Event, FaultKind, Net, NetworkPlan
from scripts.harness.errors import BenchError

LOOPBACK: Final = "127.0.0.1"
STRANGE_LOOPBACK: Final = "127.0.0.2"
ROUTER: Final = "router"
_OFF: Final = (("tx-udp-segmentation", "off"), ("tso", "off"), ("gso", "off"), ("gro", "off"))
_ON: Final = (("tx-udp-segmentation", "on"), ("tso", "on"), ("gso", "on"), ("gro", "on"))

Undo = Callable[[], None]


class Network(Protocol):
    """What the controller needs of it."""

    @property
    def receiver(self) -> str:
        """Where the receiver is reached."""

    @property
    def attackers(self) -> list[str]:
        """The addresses that attackers have."""

    def command(self, host: int, argv: Sequence[str]) -> list[str]:
        """A command line that runs at a host."""

    def inject(self, event: Event) -> Undo:
        """Do something to a host's link; return what undoes it."""


@dataclass(frozen=True, slots=True)
class Loopback:
    """No network."""

    receiver: str = LOOPBACK

    @property
    def attackers(self) -> list[str]:
        """Loopback has many addresses."""
        return [STRANGE_LOOPBACK]

    def command(self, _host: int, argv: Sequence[str]) -> list[str]:
        """As it is."""
        return list(argv)

    def inject(self, event: Event) -> Undo:
        """Nothing can be done to this machine's own loopback."""
        raise BenchError(f"{event.what}: not on loopback")


@dataclass(frozen=True, slots=True)
class InLab:
    """Namespaces."""

    lab: Lab
    hosts: Sequence[str]
    mtus: dict[int, int]

    @property
    def receiver(self) -> str:
        """The first host's address."""
        return self.lab.address(self.hosts[0])

    @property
    def attackers(self) -> list[str]:
        """The last host's addresses: it answers from any of them."""
        return [self.lab.address(self.hosts[-1]), *self._transfer(self.hosts[-1])]

    def _transfer(self, host: str) -> list[str]:
        addressing = self.lab.addressing()
        return [address for (node, _), address in addressing.transfer.items() if node == host]

    def command(self, host: int, argv: Sequence[str]) -> list[str]:
        """In the host's namespace."""
        return self.lab.command(self.hosts[host], argv)

    def inject(self, event: Event) -> Undo:
        """Change the MTU of a host's link, or have it fail."""
        host = self.hosts[event.who]
        switch = self.lab.topology.switch_of(host)
        if event.what is FaultKind.MTU:
            self.set_mtu(event.who, event.value)
            return lambda: self.set_mtu(event.who, self.mtus[event.who])
        failure: Failure = fail(self.lab, f"{host}-{switch}", carrier=event.what is FaultKind.FLAP)
        return lambda: repair(self.lab, [failure])

    def set_mtu(self, host: int, mtu: int) -> None:
        """Set the MTU of a host's link at both ends."""
        name = self.hosts[host]
        switch = self.lab.topology.switch_of(name)
        for node, neighbour in ((name, switch), (switch, name)):
            command = ["ip", "link", "set", "dev", neighbour, "mtu", str(mtu)]
            done = subprocess.run(self.lab.command(node, command), capture_output=True, text=True, check=False)
            if done.returncode:
                raise BenchError(f"MTU {mtu} of {node}: {done.stderr.strip() or 'refused'}")

    def set_offloads(self, host: int, *, on: bool) -> None:
        """Switch a host's offloads."""
        name = self.hosts[host]
        switch = self.lab.topology.switch_of(name)
        apply([SetOffloads(self.lab.netns(name), switch, _ON if on else _OFF)])


@contextmanager
def network(plan: NetworkPlan, *, senders: int, seed: int) -> Iterator[Network]:
    """Build what a scenario wants, and remove it afterwards. Raises BenchError in one line."""
    if plan.net is Net.LOOPBACK:
        yield Loopback()
        return
    count = senders + 2
    name = f"torture{os.getpid()}"
    topology = _routed(name, count) if plan.net is Net.ROUTED else _relayed(name, count, plan, seed=seed)
    try:
        with Lab.up(topology) as lab:
            hosts = topology.hosts[:count]
            built = InLab(lab, hosts, plan.mtus)
            for host in range(senders + 1):
                built.set_mtu(host, plan.mtus[host])
                built.set_offloads(host, on=plan.offloads[host])
            yield built
    except LabError as error:
        raise BenchError(str(error)) from None


def _routed(name: str, count: int) -> Topology:
    hosts = tuple(f"h{number}" for number in range(count))
    links = tuple(Link(host, ROUTER) for host in hosts)
    return Topology(name=name, hosts=hosts, switches=(Switch(ROUTER, "leaf"),), links=links, mtu=65_535)


def _relayed(name: str, count: int, plan: NetworkPlan, *, seed: int) -> Topology:
    """The receiver at one leaf, all others at the other."""
    shape = Shape.parse(plan.shape)
    # One link of each path corrupts: a bit flipped is seen by UDP's checksum, and of two in a packet one in 32 is
    # not (the same bit of two 16-bit words, in opposite directions; see docs/reliability.md).
    sound = Shape.parse({option: value for option, value in plan.shape.items() if option != "corrupt"})
    hosts = tuple(f"h{number}" for number in range(count))
    leaves, spines = ("leaf1", "leaf2"), ("spine1", "spine2")
    links = [Link(host, leaves[host != hosts[0]]) for host in hosts]
    links += [Link(leaf, spine, of, of) for leaf, of in zip(leaves, (shape, sound), strict=True) for spine in spines]
    switches = [Switch(leaf, "leaf") for leaf in leaves] + [Switch(spine, "spine") for spine in spines]
    return Topology(name=name, hosts=hosts, switches=tuple(switches), links=tuple(links), mtu=9000, seed=seed)


def undo(step: Undo) -> None:
    """Undo something, if what it was done to is still there."""
    with suppress(LabError):
        step()
