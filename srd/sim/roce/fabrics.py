"""The fabrics of the scenarios: links of 100 Gbit/s and 1 us (200 m), MTU 9000."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from netns.netem.shape import Shape
from netns.topology.model import Link, Switch, Topology, fully_meshed

LINK_BPS: Final = 100_000_000_000
LINK_US: Final = 1.0
LINK: Final = Shape(rate_bps=LINK_BPS, delay_us=LINK_US)
RING_SWITCHES: Final = 5


def tree(*, leaves: int, hosts_per_leaf: int, spines: int, spine_bps: int = LINK_BPS, seed: int = 1) -> Topology:
    """Return a leaf-spine fabric; hosts h1, h2 ... leaf by leaf."""
    topology = fully_meshed(
        leaves=leaves, spines=spines, hosts_per_leaf=hosts_per_leaf, mtu=9000,
        shape=replace(LINK, rate_bps=spine_bps), name="tree", seed=seed,
    )  # fmt: skip
    return replace(
        topology,
        links=tuple(link if link.shaped else replace(link, shape_ab=LINK, shape_ba=LINK) for link in topology.links),
    )


def hosts_of(topology: Topology, leaf: str) -> list[str]:
    """Return the hosts of a leaf."""
    return [host for host in topology.hosts if topology.switch_of(host) == leaf]


def ring(*, seed: int = 1) -> Topology:
    """Return five switches in a ring, with a host each: each link is wanted by two flows from host i to host i + 2."""
    count = RING_SWITCHES
    return Topology(
        name="ring",
        hosts=tuple(f"h{n + 1}" for n in range(count)),
        switches=tuple(Switch(f"s{n + 1}", "leaf") for n in range(count)),
        links=(
            *(Link(f"h{n + 1}", f"s{n + 1}", LINK, LINK) for n in range(count)),
            *(Link(f"s{n + 1}", f"s{(n + 1) % count + 1}", LINK, LINK) for n in range(count)),
        ),
        seed=seed,
    )


def with_slow_host(topology: Topology, host: str, *, rate_bps: int) -> tuple[Topology, str]:
    """Return the fabric with a host that takes in data slowly, and the name of the switch that is its card.

    The card is a switch of two ports with a buffer of its own: towards the host it has the host's rate.
    """
    card, leaf = f"card_{host}", topology.switch_of(host)
    slow = replace(LINK, rate_bps=rate_bps)
    links = []
    for link in topology.links:
        if host in (link.a, link.b):
            links += [Link(host, card, LINK, slow), Link(card, leaf, LINK, LINK)]
        else:
            links.append(link)
    return replace(topology, links=tuple(links), switches=(*topology.switches, Switch(card, "leaf"))), card


def with_loss(topology: Topology, link: str, *, percent: float) -> Topology:
    """Return the fabric with losses on one link, from its first end to the other."""
    return replace(
        topology,
        links=tuple(
            replace(each, shape_ab=replace(LINK, loss_percent=percent)) if each.name == link else each
            for each in topology.links
        ),
    )
