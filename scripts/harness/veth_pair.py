"""The lab of the benches on real sockets: two namespaces and one veth pair, unshaped.

A topology's host is always linked to a switch, so the receiving end is a switch: a namespace that could also route, and
is reached at its own address. Nothing lies between the two ends, so the benches measure only the hosts.

Segmentation offload `on` is a veth pair's default: super-packets of TCP and UDP cross it whole. With `off`, the sending
end segments them (in software) and the receiving end merges them again (GRO), as with a network card.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from netns.backends.kernel.netlink import apply
from netns.lab.lab import Lab
from netns.lab.operations import SetOffloads
from netns.topology.addressing import addressing
from netns.topology.model import Link, Switch, Topology

LAB_NAME: Final = "bench-veth"
SENDER: Final = "sender"
RECEIVER: Final = "receiver"
_OFFLOAD_ON: Final = (("tx-udp-segmentation", "on"), ("tso", "on"), ("gso", "on"), ("gro", "off"))
_OFFLOAD_OFF: Final = (("tx-udp-segmentation", "off"), ("tso", "off"), ("gso", "off"), ("gro", "on"))


@dataclass(frozen=True, slots=True)
class VethPair:
    """Two hosts that are up. Made by `veth_pair`."""

    lab: Lab
    sender: str
    """The sending end's address."""
    receiver: str
    """The receiving end's address."""

    def command(self, node: str, argv: Sequence[str]) -> list[str]:
        """Return the command line that runs `argv` at one end."""
        return self.lab.command(node, argv)

    @property
    def namespaces(self) -> tuple[str, str]:
        """Both ends' namespaces."""
        return self.lab.netns(SENDER), self.lab.netns(RECEIVER)


def topology(*, mtu: int, name: str = LAB_NAME) -> Topology:
    """Return a topology of one host, one switch and one link."""
    link = Link(SENDER, RECEIVER)
    return Topology(name=name, hosts=(SENDER,), switches=(Switch(RECEIVER, "leaf"),), links=(link,), mtu=mtu)


@contextmanager
def veth_pair(*, mtu: int, offload: bool, name: str = LAB_NAME) -> Iterator[VethPair]:
    """Build the pair, and always remove it afterwards. Raises LabError with one line."""
    plan = topology(mtu=mtu, name=name)
    with Lab.up(plan) as lab:
        features = _OFFLOAD_ON if offload else _OFFLOAD_OFF
        apply(
            SetOffloads(lab.netns(node), neighbour, features)
            for node, neighbour in ((SENDER, RECEIVER), (RECEIVER, SENDER))
        )
        yield VethPair(lab, lab.address(SENDER), addressing(plan).transfer[RECEIVER, SENDER])
