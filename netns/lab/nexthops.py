"""The nexthop objects of one router, for resilient groups, and their numbers.

A route with its own list of next hops chooses by hash-threshold (RFC 2992): each next hop has a share of the range of
hashes, and when one is removed all boundaries move. A resilient group (Linux 5.13; `type resilient` of ip-nexthop(8))
has buckets between hash and next hop instead, and only the buckets of the removed next hop are reassigned.

Numbers are local to the router, from 1 in order of use. Routes over the same next hops share a group.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from netns.lab.operations import AddNexthop, AddNexthopGroup, Hop, Operation


@dataclass(slots=True)
class Nexthops:
    """Allocates the nexthop objects of one router; the first route that needs an object creates it."""

    netns: str
    _members: dict[Hop, AddNexthop] = field(default_factory=dict)
    _groups: dict[tuple[Hop, ...], AddNexthopGroup] = field(default_factory=dict)

    def missing(self, hops: tuple[Hop, ...]) -> Iterator[Operation]:
        """Yield the operations that must precede a route over `hops`."""
        for hop in hops:
            if hop not in self._members:
                self._members[hop] = AddNexthop(self.netns, self._next(), hop)
                yield self._members[hop]
        if hops not in self._groups:
            members = tuple(self._members[hop] for hop in hops)
            self._groups[hops] = AddNexthopGroup(self.netns, self._next(), members)
            yield self._groups[hops]

    def group(self, hops: tuple[Hop, ...]) -> int:
        """Return the number of the group of `hops`, which `missing` has created."""
        return self._groups[hops].number

    def _next(self) -> int:
        return len(self._members) + len(self._groups) + 1
