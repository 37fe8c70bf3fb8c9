"""The addresses of a topology: a pure function, so that a plan can be read before anything exists.

    10.0.LEAF.HOST         fd53:5244:0:LEAF::HOST         a host's main address: reached over every spine (ECMP)
    10.(100+S).LEAF.HOST   fd53:5244:(100+S):LEAF::HOST   the same host, pinned: its traffic crosses spine S only
    10.255.x.y/31          fd53:5244:255:x::y/127         transfer addresses of links, two each (topology.MAX_LINKS)
    02:53:52:xx:xx:0e                                     hardware addresses, from the link's number and the end

LEAF numbers the switches that have hosts, S the spines, HOST the hosts of a leaf; all from 1, in the topology's order.
IPv6 addresses (of topologies with `ipv6`) have the same numbers at the same positions, written with the same digits:
10.101.2.1 corresponds to fd53:5244:101:2::1. fd00::/8 is for local use (RFC 4193).
Because the plan has the hardware addresses, neighbours are permanent entries and no ARP is ever sent: a lossy or
blackholed link then affects data only, as it would in a fabric with a control plane.

All addresses are inside namespaces, so several labs can use the same ones without conflict.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv6Address
from typing import Final, Literal

from netns.errors import TopologyError
from netns.topology.model import Topology
from netns.topology.routing import planes

IpVersion = Literal[4, 6]

MAX_SPINES: Final = 154  # 10.101 to 10.254
MAX_LEAVES: Final = 254
MAX_HOSTS_PER_LEAF: Final = 254
MAIN_OCTET: Final = 0
PINNED_OCTET: Final = 100
TRANSFER_OCTET: Final = 255
ULA: Final = "fd53:5244"


@dataclass(frozen=True, slots=True)
class Addressing:
    """All addresses of a topology in one version of IP; created by `addressing`."""

    version: IpVersion

    main: Mapping[str, str]
    """Host -> its ECMP address."""

    pinned: Mapping[str, Mapping[str, str]]
    """Host -> spine -> the host's address in that spine's plane."""

    transfer: Mapping[tuple[str, str], str]
    """(node, neighbour) -> the node's address on the link between them; the interface has the neighbour's name."""

    hardware: Mapping[tuple[str, str], str]
    """(node, neighbour) -> the hardware address of the node's interface."""

    leaf_number: Mapping[str, int]
    """Switch with hosts -> LEAF."""

    plane_number: Mapping[str, int]
    """Spine -> 100 + S: the second octet of its plane's addresses, and the number of its routing table."""

    def main_prefix(self, leaf: str) -> str:
        """Return the prefix of the main addresses of a leaf's hosts."""
        return _leaf_prefix(MAIN_OCTET, self.leaf_number[leaf], version=self.version)

    def pinned_prefix(self, leaf: str, *, spine: str) -> str:
        """Return the prefix of the addresses of a leaf's hosts in the plane of `spine`."""
        return _leaf_prefix(self.plane_number[spine], self.leaf_number[leaf], version=self.version)

    def plane_prefix(self, spine: str) -> str:
        """Return the prefix of all addresses in the plane of `spine`."""
        octet = self.plane_number[spine]
        return f"10.{octet}.0.0/16" if self.version == 4 else f"{ULA}:{octet}::/48"

    @property
    def host_bits(self) -> int:
        """The prefix length of a single address."""
        return 32 if self.version == 4 else 128

    def all_of(self, host: str) -> tuple[str, ...]:
        """Return the main and pinned addresses of a host."""
        return (self.main[host], *self.pinned[host].values())

    def owner(self, address: str) -> str | None:
        """Return the node that has the transfer address `address`, which ICMP errors contain; None if no node has."""
        return next((node for (node, _), owned in self.transfer.items() if owned == address), None)


def versions(topology: Topology) -> tuple[IpVersion, ...]:
    """Return the versions of IP in a topology."""
    return (4, 6) if topology.ipv6 else (4,)


def addressing(topology: Topology, *, version: IpVersion = 4) -> Addressing:
    """Return the addresses of `topology`; TopologyError if it exceeds the address plan, or has no IPv6."""
    if version not in versions(topology):
        raise TopologyError(f"{topology.name}: has no IPv6 addresses; set ipv6: true in its file")
    leaf_number: dict[str, int] = {}
    numbers: dict[str, tuple[int, int]] = {}
    hosts_on: dict[str, int] = {}
    for host in topology.hosts:
        leaf = topology.switch_of(host)
        number = leaf_number.setdefault(leaf, len(leaf_number) + 1)
        hosts_on[leaf] = hosts_on.get(leaf, 0) + 1
        numbers[host] = (number, hosts_on[leaf])
    _check_size(topology, leaves=len(leaf_number), hosts_per_leaf=max(hosts_on.values()))
    connected = planes(topology)
    plane_number = {
        spine: PINNED_OCTET + index + 1 for index, spine in enumerate(topology.spines) if spine in connected
    }
    transfer, hardware = {}, {}
    for index, link in enumerate(topology.links):
        for end, (node, neighbour) in enumerate(((link.a, link.b), (link.b, link.a))):
            low = 2 * index + end
            transfer[node, neighbour] = _address(TRANSFER_OCTET, low >> 8, low & 255, version=version)
            hardware[node, neighbour] = f"02:53:52:{index >> 8:02x}:{index & 255:02x}:0{'ab'[end]}"
    return Addressing(
        version=version,
        main={host: _address(MAIN_OCTET, leaf, number, version=version) for host, (leaf, number) in numbers.items()},
        pinned={
            host: {spine: _address(octet, leaf, number, version=version) for spine, octet in plane_number.items()}
            for host, (leaf, number) in numbers.items()
        },
        transfer=transfer,
        hardware=hardware,
        leaf_number=leaf_number,
        plane_number=plane_number,
    )


def _address(octet: int, third: int, last: int, *, version: IpVersion) -> str:
    if version == 4:
        return f"10.{octet}.{third}.{last}"
    return str(IPv6Address(f"{ULA}:{octet}:{third}::{last}"))


def _leaf_prefix(octet: int, leaf: int, *, version: IpVersion) -> str:
    return f"10.{octet}.{leaf}.0/24" if version == 4 else f"{_address(octet, leaf, 0, version=6)}/64"


def _check_size(topology: Topology, *, leaves: int, hosts_per_leaf: int) -> None:
    for what, count, most in (
        ("spines", len(topology.spines), MAX_SPINES),
        ("switches with hosts", leaves, MAX_LEAVES),
        ("hosts on one switch", hosts_per_leaf, MAX_HOSTS_PER_LEAF),
    ):
        if count > most:
            raise TopologyError(f"{topology.name}: {count} {what}; the address plan has room for {most}")
