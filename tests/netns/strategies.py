"""Topologies for property tests."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

from hypothesis import strategies as st

from netns.netem.shape import Shape
from netns.topology.clos import ClosLinks, clos
from netns.topology.model import Ecmp, Link, Switch, Topology, leaf_spine

SHAPES = st.builds(
    Shape,
    delay_us=st.integers(0, 50_000),
    jitter_us=st.integers(0, 1000),
    loss_percent=st.integers(0, 100),
    rate_bps=st.sampled_from([0, 1_000_000, 250_000_000]),
    limit_packets=st.integers(1, 5000),
)


def routed(topology: Topology, *, ipv6: bool, ecmp: Ecmp) -> Topology:
    """The topology with other routing options."""
    return replace(topology, ipv6=ipv6, ecmp=ecmp)


def any_routing(topologies: st.SearchStrategy[Topology]) -> st.SearchStrategy[Topology]:
    """Each with all routing options."""
    return st.builds(routed, topologies, ipv6=st.booleans(), ecmp=st.sampled_from(get_args(Ecmp)))


PLAIN_LEAF_SPINES = st.builds(
    leaf_spine,
    leaves=st.integers(1, 4),
    spines=st.integers(1, 6),
    hosts_per_leaf=st.integers(1, 3),
    mtu=st.sampled_from([1280, 1500, 9000]),
    shape=st.none() | SHAPES,
    seed=st.integers(0, 2**32 - 1),
)

LEAF_SPINES = any_routing(PLAIN_LEAF_SPINES)

THREE_TIERS = st.builds(
    clos,
    blocks=st.integers(1, 3),
    leaves_per_block=st.integers(1, 2),
    hosts_per_leaf=st.integers(1, 2),
    aggregations_per_block=st.integers(1, 2),
    spines=st.integers(1, 3),
    links=st.builds(ClosLinks, host=st.none() | SHAPES, leaf=st.none() | SHAPES, spine=st.none() | SHAPES),
    seed=st.integers(0, 2**32 - 1),
)


@st.composite
def connected_topologies(draw: st.DrawFn) -> Topology:
    """Any connected graph of switches, with hosts anywhere: what the explicit form of a file can describe."""
    tiers = draw(st.lists(st.sampled_from(["leaf", "aggregation", "spine"]), min_size=1, max_size=7))
    switches = tuple(Switch(f"s{index}", tier) for index, tier in enumerate(tiers))  # type: ignore[arg-type]  # sampled from them
    pairs = [(draw(st.integers(0, index - 1)), index) for index in range(1, len(tiers))]
    possible = [(a, b) for b in range(len(tiers)) for a in range(b) if (a, b) not in pairs]
    if possible:
        pairs += draw(st.lists(st.sampled_from(possible), unique=True, max_size=6))
    links = [Link(f"s{a}", f"s{b}", draw(st.none() | SHAPES), draw(st.none() | SHAPES)) for a, b in pairs]
    homes = draw(st.lists(st.integers(0, len(tiers) - 1), min_size=1, max_size=5))
    hosts = tuple(f"h{index}" for index in range(len(homes)))
    links += [Link(host, f"s{home}") for host, home in zip(hosts, homes, strict=True)]
    return Topology(name="any", hosts=hosts, switches=switches, links=tuple(links))


TOPOLOGIES = any_routing(PLAIN_LEAF_SPINES | THREE_TIERS | connected_topologies())
