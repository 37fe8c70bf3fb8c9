"""The network of a scenario: runs commands at its hosts, and injects faults into its links.

Loopback needs no set-up. The others are labs of netns: hosts around one router, with an MTU per link, or two leaves and
two spines with shaped links. Host 0 receives, the next ones send, and the last one is for the attackers.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final

from netns.backends.kernel.netlink import apply
from netns.errors import LabError
from netns.faults.faults import fail, repair
from netns.lab.lab import Lab
from netns.lab.operations import SetOffloads
from netns.lab.state import Failure
from netns.netem.shape import Shape
from netns.programs import output_of
from netns.topology.model import Link, Switch, Topology
from scripts.benches.torture.plans import FaultKind, Net, NetworkPlan, TimedFault
from scripts.harness.errors import BenchError

LOOPBACK: Final = "127.0.0.1"
ATTACKER_LOOPBACK: Final = "127.0.0.2"
ROUTER: Final = "router"
_OFF: Final = (("tx-udp-segmentation", "off"), ("tso", "off"), ("gso", "off"), ("gro", "off"))
_ON: Final = (("tx-udp-segmentation", "on"), ("tso", "on"), ("gso", "on"), ("gro", "on"))

Undo = Callable[[], None]


class Network:
    """The loopback interface of this machine, which has no faults."""

    receiver: str = LOOPBACK
    attackers: Sequence[str] = (ATTACKER_LOOPBACK,)

    def command(self, _host: int, argv: Sequence[str]) -> list[str]:
        return list(argv)

    def inject(self, event: TimedFault) -> Undo:
        """Inject a fault into the link of a host; return its reversal."""
        raise BenchError(f"{event.what}: not on loopback")


class LabNetwork(Network):
    def __init__(self, lab: Lab, mtus: dict[int, int], *, count: int) -> None:
        self.lab = lab
        self.hosts = lab.topology.hosts[:count]
        self.mtus = mtus
        last = self.hosts[-1]
        transfer = [address for (node, _), address in lab.addressing().transfer.items() if node == last]
        self.receiver, self.attackers = lab.address(self.hosts[0]), [lab.address(last), *transfer]

    def command(self, host: int, argv: Sequence[str]) -> list[str]:
        return self.lab.command(self.hosts[host], argv)

    def inject(self, event: TimedFault) -> Undo:
        host = self.hosts[event.worker]
        switch = self.lab.topology.switch_of(host)
        if event.what is FaultKind.MTU:
            self.set_mtu(event.worker, event.value)
            return lambda: self.set_mtu(event.worker, self.mtus[event.worker])
        failure: Failure = fail(self.lab, f"{host}-{switch}", carrier=event.what is FaultKind.FLAP)
        return lambda: repair(self.lab, [failure])

    def set_mtu(self, host: int, mtu: int) -> None:
        """Set the MTU of a host's link at both ends."""
        name = self.hosts[host]
        switch = self.lab.topology.switch_of(name)
        for node, neighbour in ((name, switch), (switch, name)):
            command = ["ip", "link", "set", "dev", neighbour, "mtu", str(mtu)]
            output_of(self.lab.command(node, command), called=f"MTU {mtu} of {node}")

    def set_offloads(self, host: int, *, on: bool) -> None:
        name = self.hosts[host]
        switch = self.lab.topology.switch_of(name)
        apply([SetOffloads(self.lab.netns(name), switch, _ON if on else _OFF)])


@contextmanager
def network(plan: NetworkPlan, *, senders: int, seed: int) -> Iterator[Network]:
    """Build the network of a scenario, and remove it afterwards. Raises BenchError."""
    if plan.net is Net.LOOPBACK:
        yield Network()
        return
    count = senders + 2
    name = f"torture{os.getpid()}"
    topology = _routed(name, count) if plan.net is Net.ROUTED else _relayed(name, count, plan, seed=seed)
    try:
        with Lab.up(topology) as lab:
            built = LabNetwork(lab, plan.mtus, count=count)
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
    """Return two leaves and two spines, with the receiver at one leaf and all others at the other."""
    shape = Shape.parse(plan.shape)
    # Only one link of each path corrupts: UDP's checksum detects one flipped bit, but misses one in 32 pairs
    # (the same bit of two 16-bit words, in opposite directions; see docs/reliability.md).
    sound = Shape.parse({option: value for option, value in plan.shape.items() if option != "corrupt"})
    hosts = tuple(f"h{number}" for number in range(count))
    leaves, spines = ("leaf1", "leaf2"), ("spine1", "spine2")
    links = [Link(host, leaves[host != hosts[0]]) for host in hosts]
    links += [Link(leaf, spine, of, of) for leaf, of in zip(leaves, (shape, sound), strict=True) for spine in spines]
    switches = [Switch(leaf, "leaf") for leaf in leaves] + [Switch(spine, "spine") for spine in spines]
    return Topology(name=name, hosts=hosts, switches=tuple(switches), links=tuple(links), mtu=9000, seed=seed)


def undo(step: Undo) -> None:
    with suppress(LabError):
        step()
