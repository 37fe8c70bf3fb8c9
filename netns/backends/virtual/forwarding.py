"""Forwarding: shortest paths, where each router selects one next hop by a hash of the 4-tuple with its own seed.

In the kernel and relay backends, fib_multipath_hash_policy 3 with fields 0x37 and a fib_multipath_hash_seed per router
(netns/lab/plan.py) do the same: the choice depends only on addresses, protocol and ports, and two tiers do not
polarise. The seeds are the same in all backends. The hash function differs from the kernel's, whose mapping is not a
stable interface either.

A router does not use links without carrier. With hash-threshold, its other flows may move then; in resilient groups
they stay. Flows return to a recovered neighbour at once (Linux waits until they are idle).

Hosts have their main addresses here; those of the other backends that are pinned to a spine do not exist.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Final

from netns.errors import TopologyError
from netns.lab.operations import RESILIENT_BUCKETS
from netns.lab.plan import derive_seed
from netns.topology.addressing import addressing, versions
from netns.topology.model import Topology
from netns.topology.routing import next_hops

MOST_HOPS: Final = 16
"""Links between switches that a packet may cross before its TTL is used up: it matters in loops only."""


class Forwarding:
    """The forwarding tables of all routers of one topology."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self.addresses = {version: addressing(topology, version=version) for version in versions(topology)}
        self._switch_of = {host: topology.links_of[host][0].other(host) for host in topology.hosts}
        self._owner: dict[str, str] = {}
        for addresses in self.addresses.values():
            self._owner |= {address: host for host, address in addresses.main.items()}
        self.dead: set[frozenset[str]] = set()
        """Links without carrier, as pairs of nodes: the routers at both ends use their other links."""
        self.bounces = False
        """Whether a router with no next hop left sends to any other switch, as by a default route or local repair: up
        again what has come down. The others do not know, so packets may go in loops."""
        self._tables: dict[str, Mapping[str, tuple[str, ...]]] = {}  # by leaf
        self._keys = {
            switch.name: derive_seed(topology.seed, label=f"{switch.name}/ecmp").to_bytes(4, "big")
            for switch in topology.switches
        }

    def host_of(self, address: str) -> str:
        """The host that has `address`; TopologyError if none has."""
        host = self._owner.get(address)
        if host is None:
            raise TopologyError(f"address {address}: no host of {self._topology.name} has it; give a host's address")
        return host

    def route(self, source: str, *, source_port: int, destination: str, destination_port: int) -> tuple[str, ...]:
        """The nodes from the source host to the destination host, both included. Raises TopologyError.

        With `bounces` it may end at a switch: the TTL is used up.
        """
        first, last = self.host_of(source), self.host_of(destination)
        if first == last:
            raise TopologyError(f"flow {source} to {destination}: both are {first}, and the fabric is not in between")
        leaf = self._switch_of[last]
        table = self._table(leaf)
        text = f"{source} {destination} 17 {source_port} {destination_port}".encode()
        way = [first, self._switch_of[first]]
        while way[-1] != leaf:
            node = way[-1]
            neighbours = table[node]
            if self.bounces and self._all_dead(node, neighbours):
                neighbours = self._others(node, way[-2]) or neighbours
            if self.bounces and len(way) > MOST_HOPS:
                break
            way.append(self._chosen(node, neighbours, _hash(text, key=self._keys[node])))
        return (*way, last) if way[-1] == leaf else tuple(way)

    def _all_dead(self, node: str, neighbours: tuple[str, ...]) -> bool:
        return bool(self.dead) and all(frozenset((node, other)) in self.dead for other in neighbours)

    def _others(self, node: str, before: str) -> tuple[str, ...]:
        """The switches to which a node has a link with carrier, but for the one from which the packet came."""
        others = (link.other(node) for link in self._topology.links_of[node])
        return tuple(
            other
            for other in others
            if other in self._keys and other != before and frozenset((node, other)) not in self.dead
        )

    def _chosen(self, node: str, neighbours: tuple[str, ...], number: int) -> str:
        """The neighbour for a 32-bit hash; if all are down, one of those: the packets are lost there."""
        alive = neighbours
        if self.dead:
            alive = tuple(other for other in neighbours if frozenset((node, other)) not in self.dead) or neighbours
        if self._topology.ecmp == "hash-threshold":
            return alive[number * len(alive) >> 32]
        bucket = number * RESILIENT_BUCKETS >> 32
        owner = neighbours[bucket % len(neighbours)]
        return owner if owner in alive else alive[bucket // len(neighbours) % len(alive)]

    def _table(self, leaf: str) -> Mapping[str, tuple[str, ...]]:
        table = self._tables.get(leaf)
        if table is None:
            table = self._tables[leaf] = next_hops(self._topology, towards=leaf)
        return table


def _hash(text: bytes, *, key: bytes) -> int:
    """A 32-bit hash, the same in every process and version of Python."""
    return int.from_bytes(hashlib.blake2b(text, digest_size=4, key=key).digest(), "big")
