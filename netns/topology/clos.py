"""Three-tier Clos fabrics: racks in blocks, like the clusters for which topology-aware schedulers are made.

    spines         spine1 ...  every aggregation switch has a link to every spine         network-node layer 1
    aggregations   agg1 ...    every leaf of a block to every aggregation of its block    network-node layer 2: a block
    leaves         leaf1 ...   a rack: the only switch of its hosts                       network-node layer 3: a rack
    hosts          h1 ...      rack by rack, block by block

All shortest paths are used (ECMP): within a block one over each aggregation switch, between blocks one for each spine
and each pair of aggregation switches. Two hosts are 2 links apart in a rack, 4 in a block, 6 across blocks.

Each kind of link has one shape. Delays increase towards the spines, as cables get longer, and capacity usually
decreases: a switch whose uplinks carry less than its downlinks is *oversubscribed*, by 2.5:1 to 8:1 in typical data
centres (M. Al-Fares, A. Loukissas, A. Vahdat, "A Scalable, Commodity Data Center Network Architecture", SIGCOMM 2008,
section 2.1.2).

A port with a rate can hold the packets on the wire and one bandwidth-delay product of the longest path, at least
PORT_BUFFER_PACKETS full packets: netem's own default of 1000 packets would be a queue of seconds at these rates.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, fields
from typing import Final

from netns.errors import TopologyError
from netns.netem.shape import DerivedLimit, Shape
from netns.topology.model import ETHERNET_HEADER_BYTES, Link, Switch, Topology, check_range, check_size, hosts_of_leaves

PORT_BUFFER_PACKETS: Final = 16
"""144 kB at MTU 9000: about the share of a port in the memory of a shallow-buffered switch."""

DELAYS: Final = {"host": 2, "leaf": 4, "spine": 4}
"""How often the delay of each kind of link is in the longest round trip."""

MOST: Final = 254  # of each kind of switch, and of hosts in a rack: the limit of the address plan


@dataclass(frozen=True, slots=True)
class ClosLinks:
    """The shape of each kind of link; None leaves it unshaped."""

    host: Shape | None = None
    """From a leaf to its hosts; what a host sends is not shaped (netns/lab/plan.py has the reason)."""

    leaf: Shape | None = None
    """Between leaf and aggregation switch, each way."""

    spine: Shape | None = None
    """Between aggregation switch and spine, each way."""

    @property
    def longest_rtt_us(self) -> float:
        """The round trip between blocks in an empty fabric; what hosts send crosses their own links unshaped."""
        shapes = {"host": self.host, "leaf": self.leaf, "spine": self.spine}
        return sum(DELAYS[kind] * shape.delay_us for kind, shape in shapes.items() if shape is not None)

    def with_room(self, *, mtu: int, keep: Collection[str] = ()) -> ClosLinks:
        """Return these with the limits of the module's docstring, except for the kinds in `keep`."""
        shapes = {each.name: getattr(self, each.name) for each in fields(self)}
        return ClosLinks(
            **{
                kind: shape if shape is None or kind in keep else self._roomy(shape, delays=DELAYS[kind], mtu=mtu)
                for kind, shape in shapes.items()
            }
        )

    def _roomy(self, shape: Shape, *, delays: int, mtu: int) -> Shape:
        derived = DerivedLimit(
            packet_bytes=mtu + ETHERNET_HEADER_BYTES,
            delays=delays,
            other_rtt_us=self.longest_rtt_us - delays * shape.delay_us,
            least_packets=PORT_BUFFER_PACKETS,
        )
        return shape.with_fields({"derived_limit": derived})


def clos(
    *,
    blocks: int = 2,
    leaves_per_block: int = 2,
    hosts_per_leaf: int | list[int] | tuple[int, ...] = 4,
    aggregations_per_block: int = 2,
    spines: int = 2,
    links: ClosLinks | None = None,
    mtu: int = 9000,
    name: str = "three-tier",
    seed: int = 1,
) -> Topology:
    """Build a three-tier Clos; `hosts_per_leaf` is one number for all racks or one for each; 0: no rack there.

    Shapes stay as they are: `ClosLinks.with_room` has the limits of the module's docstring. Raises TopologyError.
    """
    links = links or ClosLinks()
    for key, value in (
        ("blocks", blocks),
        ("leaves_per_block", leaves_per_block),
        ("aggregations_per_block", aggregations_per_block),
        ("spines", spines),
    ):
        check_range(key, value, low=1, high=MOST)
    racks = _racks(hosts_per_leaf, blocks=blocks, leaves_per_block=leaves_per_block)
    hosts_count = sum(count for _, count in racks)
    uplinks = len(racks) * aggregations_per_block + blocks * aggregations_per_block * spines
    check_size(links=hosts_count + uplinks)
    block_of = {f"leaf{index + 1}": block for index, (block, _) in enumerate(racks)}
    homes = [leaf for leaf, (_, hosts) in zip(block_of, racks, strict=True) for _ in range(hosts)]
    hosts = tuple(f"h{index + 1}" for index in range(len(homes)))
    aggregations = [f"agg{index + 1}" for index in range(blocks * aggregations_per_block)]
    tops = [f"spine{index + 1}" for index in range(spines)]
    return Topology(
        name=name,
        mtu=mtu,
        seed=seed,
        hosts=hosts,
        switches=(
            *(Switch(leaf, "leaf") for leaf in block_of),
            *(Switch(aggregation, "aggregation") for aggregation in aggregations),
            *(Switch(top, "spine") for top in tops),
        ),
        links=(
            *(Link(host, leaf, None, links.host) for host, leaf in zip(hosts, homes, strict=True)),
            *(
                Link(leaf, aggregation, links.leaf, links.leaf)
                for leaf, block in block_of.items()
                for aggregation in aggregations[block * aggregations_per_block : (block + 1) * aggregations_per_block]
            ),
            *(Link(aggregation, top, links.spine, links.spine) for aggregation in aggregations for top in tops),
        ),
    )


def _racks(
    hosts_per_leaf: int | list[int] | tuple[int, ...], *, blocks: int, leaves_per_block: int
) -> list[tuple[int, int]]:
    """Return for each rack its block and its number of hosts."""
    counts = hosts_of_leaves(hosts_per_leaf, leaves=blocks * leaves_per_block, least=0)
    racks = [(index // leaves_per_block, count) for index, count in enumerate(counts) if count]
    for block in range(blocks):
        if all(block != each for each, _ in racks):
            raise TopologyError(f"hosts_per_leaf: block {block + 1} has no hosts; leave it out or give it some")
    return racks
