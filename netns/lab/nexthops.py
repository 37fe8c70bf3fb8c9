"""The nexthop objects of one router, for resilient groups: which there are, and their numbers.

A route whose next hops are listed in it is chosen from by hash-threshold (RFC 2992): each next hop has its share of the
range of hashes, and when one goes all borders move. A resilient group (Linux 5.13; `type resilient` of ip-nexthop(8))
has buckets between hash and next hop instead, and only the buckets of the one that went get another.

Numbers are the router's own, from 1 in the order of use. Routes over the same next hops share a group.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from netns.lab.operations import AddNexthop, AddNexthopGroup, Hop, Operation


@dataclass(slots=True)
class Nexthops:
    """Hands out the objects of one router; each is made by the first route that needs it."""

    netns: str
    _members: dict[Hop, AddNexthop] = field(default_factory=dict)
    _groups: dict[tuple[Hop, ...], AddNexthopGroup] = field(default_factory=dict)

    def missing(self, hops: tuple[Hop, ...]) -> Iterator[Operation]:
        """The steps that must come before a route over `hops`."""
        for hop in hops:
            if hop not in self._members:
                self._members[hop] = AddNexthop(self.netns, self._next(), hop)
                yield self._members[hop]
        if hops not in self._groups:
            members = tuple(self._members[hop] for hop in hops)
            self._groups[hops] = AddNexthopGroup(self.netns, self._next(), members)
            yield self._groups[hops]

    def group(self, hops: tuple[Hop, ...]) -> int:
        """The number of the group of `hops`, which `missing` has made."""
        return self._groups[hops].number

    def _next(self) -> int:
        return len(self._members) + len(self._groups) + 1
