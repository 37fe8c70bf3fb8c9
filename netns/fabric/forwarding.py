"""Which way a flow takes: shortest paths, one chosen at each router by hash of the 4-tuple with a seed of its own.

What the kernel fabrics get from fib_multipath_hash_policy 3 with fields 0x37 and a fib_multipath_hash_seed per router
(netns/plan.py): the choice depends on addresses, protocol and ports and on nothing else, and two tiers do not polarise.
The seeds are the same as there; the hash function is not the kernel's, whose mapping is promised to nobody either.

Traffic to or from a pinned address stays in the plane of its spine, as the kernel fabrics' rules have it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from netns.addressing import addressing
from netns.errors import TopologyError
from netns.plan import derive_seed
from netns.routing import next_hops, planes
from netns.topology import Topology


class Forwarding:
    """All routers' tables of one topology."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self.addresses = addressing(topology)
        self._switch_of = {host: topology.links_of[host][0].other(host) for host in topology.hosts}
        self._owner = {address: host for host, address in self.addresses.main.items()}
        self._spine: dict[str, str] = {}
        for host, pinned in self.addresses.pinned.items():
            for spine, address in pinned.items():
                self._owner[address] = host
                self._spine[address] = spine
        self._avoiding = planes(topology)
        self._tables: dict[tuple[str, str | None], Mapping[str, tuple[str, ...]]] = {}
        self._keys = {
            switch.name: derive_seed(topology.seed, label=f"{switch.name}/ecmp").to_bytes(4, "big")
            for switch in topology.switches
        }

    def host_of(self, address: str) -> str:
        """The host that has `address`; TopologyError if none has."""
        host = self._owner.get(address)
        if host is None:
            raise TopologyError(f"address {address}: no host of {self._topology.name} has it; ask for a host's address")
        return host

    def way(self, source: str, *, source_port: int, destination: str, destination_port: int) -> tuple[str, ...]:
        """The nodes from the source's host to the destination's, both included. Raises TopologyError."""
        first, last = self.host_of(source), self.host_of(destination)
        if first == last:
            raise TopologyError(f"flow {source} to {destination}: both are {first}, and the fabric is not in between")
        leaf = self._switch_of[last]
        table = self._table(leaf, spine=self._spine.get(destination) or self._spine.get(source))
        text = f"{source} {destination} 17 {source_port} {destination_port}".encode()
        way = [first, self._switch_of[first]]
        while way[-1] != leaf:
            node = way[-1]
            neighbours = table[node]
            way.append(neighbours[_hash(text, key=self._keys[node]) * len(neighbours) >> 32])
        return (*way, last)

    def _table(self, leaf: str, *, spine: str | None) -> Mapping[str, tuple[str, ...]]:
        table = self._tables.get((leaf, spine))
        if table is None:
            avoiding = self._avoiding[spine] if spine is not None else frozenset[str]()
            table = self._tables[leaf, spine] = next_hops(self._topology, towards=leaf, avoiding=avoiding)
        return table


def _hash(text: bytes, *, key: bytes) -> int:
    """32 bits, the same in every process and version of Python."""
    return int.from_bytes(hashlib.blake2b(text, digest_size=4, key=key).digest(), "big")
