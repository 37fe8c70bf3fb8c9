"""netns.topology.clos: sizes, distances, routes and buffers of three-tier fabrics, and a real one."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netns.backends.virtual.forwarding import Forwarding
from netns.errors import TopologyError
from netns.lab.lab import Lab
from netns.netem.shape import Shape
from netns.observe.route_probe import probe_spines
from netns.topology.clos import MOST, PORT_BUFFER_PACKETS, ClosLinks, clos
from netns.topology.model import Topology
from tests.netns.exchange import PORT, udp_socket

LINKS = ClosLinks(
    host=Shape(delay_us=50, rate_bps=100_000_000),
    leaf=Shape(delay_us=500, rate_bps=100_000_000),
    spine=Shape(delay_us=2000, rate_bps=12_500_000),
)
PACKET = 9014


def block_of(topology: Topology, host: str) -> frozenset[str]:
    """The aggregation switches over a host's leaf."""
    leaf = topology.switch_of(host)
    tiers = {switch.name: switch.tier for switch in topology.switches}
    neighbours = (link.other(leaf) for link in topology.links_of[leaf])
    return frozenset(other for other in neighbours if tiers.get(other) == "aggregation")


@given(
    blocks=st.integers(1, 4),
    leaves=st.integers(1, 3),
    hosts=st.integers(1, 3),
    aggregations=st.integers(1, 3),
    spines=st.integers(1, 3),
)
def test_clos__size_and_distances(blocks: int, leaves: int, hosts: int, aggregations: int, spines: int) -> None:
    topology = clos(
        blocks=blocks,
        leaves_per_block=leaves,
        hosts_per_leaf=hosts,
        aggregations_per_block=aggregations,
        spines=spines,
    )
    assert len(topology.hosts) == blocks * leaves * hosts
    tiers = Counter(switch.tier for switch in topology.switches)
    assert tiers == {"leaf": blocks * leaves, "aggregation": blocks * aggregations, "spine": spines}
    assert len(topology.links) == len(topology.hosts) + blocks * aggregations * (leaves + spines)
    for one in topology.hosts:
        away = topology.distances(one)
        for other in topology.hosts:
            if topology.switch_of(one) == topology.switch_of(other):
                assert away[other] == (0 if one == other else 2)
            else:
                assert away[other] == (4 if block_of(topology, one) == block_of(topology, other) else 6)


def test_clos__hosts_go_rack_by_rack() -> None:
    topology = clos(blocks=2, leaves_per_block=2, hosts_per_leaf=(3, 0, 1, 2))
    homes = [topology.switch_of(host) for host in topology.hosts]
    assert homes == ["leaf1", "leaf1", "leaf1", "leaf2", "leaf3", "leaf3"]
    assert topology.leaves == ("leaf1", "leaf2", "leaf3"), "where there is no rack there is no leaf"
    assert block_of(topology, "h1") == {"agg1", "agg2"}
    assert block_of(topology, "h4") == block_of(topology, "h6") == {"agg3", "agg4"}


def test_clos__links_have_their_kinds_shape() -> None:
    topology = clos(links=LINKS)
    host, leaf, spine = (topology.link(name) for name in ("h1-leaf1", "leaf1-agg1", "agg1-spine1"))
    assert host.shape_ab is None
    assert host.shape_ba is not None
    assert (host.shape_ba.delay_us, host.shape_ba.rate_bps) == (50, 100_000_000)
    for link, kind in ((leaf, LINKS.leaf), (spine, LINKS.spine)):
        assert kind is not None
        assert link.shape_ab == link.shape_ba
        assert link.shape_ab is not None
        assert (link.shape_ab.delay_us, link.shape_ab.rate_bps) == (kind.delay_us, kind.rate_bps)


def test_clos__every_way_is_taken() -> None:
    """Within a block over each aggregation switch; between blocks over each, up and down, and each spine."""
    forwarding = Forwarding(clos(aggregations_per_block=2, spines=3))
    main = forwarding.addresses[4].main

    def routes(other: str) -> set[tuple[str, ...]]:
        return {
            forwarding.route(main["h1"], source_port=port, destination=main[other], destination_port=1)
            for port in range(500)
        }

    assert routes("h2") == {("h1", "leaf1", "h2")}
    assert len(routes("h5")) == 2
    assert len(routes("h9")) == 2 * 3 * 2


def test_with_room__is_the_delay_line_and_a_bdp_or_a_ports_share() -> None:
    assert LINKS.longest_rtt_us == 10_100
    shapes = LINKS.with_room(mtu=9000)
    assert shapes.host is not None
    assert shapes.host.limit_packets == 1 + PORT_BUFFER_PACKETS + 1, "625 B under way; a BDP is 126 kB"
    fast = ClosLinks(spine=Shape(delay_us=2000, rate_bps=1_000_000_000)).with_room(mtu=9000).spine
    assert fast is not None
    assert fast.limit_packets == -(-(250_000 + 1_000_000) // PACKET) + 1
    unlimited = ClosLinks(leaf=Shape(delay_us=5))
    assert unlimited.with_room(mtu=9000) == unlimited
    assert LINKS.with_room(mtu=9000, keep=("host", "leaf", "spine")) == LINKS


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"blocks": 0}, f"^blocks: 0 is not an integer between 1 and {MOST}$"),
        ({"leaves_per_block": True}, "^leaves_per_block: True is not an integer"),
        ({"aggregations_per_block": 2.0}, "^aggregations_per_block: 2.0 is not an integer"),
        ({"spines": MOST + 1}, "^spines: 255 is not an integer"),
        ({"hosts_per_leaf": 0}, "^hosts_per_leaf: 0 is not an integer"),
        ({"hosts_per_leaf": (1, 2, 3)}, "^hosts_per_leaf: 3 numbers for 4 leaves; give one for each, or one for all$"),
        ({"hosts_per_leaf": (1, 2, -3, 4)}, r"^hosts_per_leaf\[2\]: -3 is not an integer between 0 and"),
        ({"hosts_per_leaf": (0, 0, 0, 0)}, "^hosts_per_leaf: block 1 has no hosts"),
        ({"hosts_per_leaf": (1, 0, 0, 0)}, "^hosts_per_leaf: block 2 has no hosts; leave it out or give it some$"),
    ],
)
def test_clos__bad_flow(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(TopologyError, match=message):
        clos(**changes)


@pytest.mark.root
def test_clos__as_a_lab(lab_name: str) -> None:
    """Hosts' ports are shaped on the way down; the host still sends packets, not super-packets; every spine is used."""
    links = ClosLinks(host=Shape(delay_us=100, rate_bps=100_000_000), leaf=Shape(delay_us=200), spine=Shape())
    with Lab.up(clos(hosts_per_leaf=1, links=links, name=lab_name)) as lab:
        with udp_socket(lab, "h1") as one, udp_socket(lab, "h4") as far:
            one.setsockopt(17, 103, 1000)  # UDP_SEGMENT
            one.sendto(b"x" * 6000, (lab.address("h4"), PORT))
            assert [len(far.recv(10_000)) for _ in range(6)] == [1000] * 6
            far.sendto(b"back", (lab.address("h1"), PORT))
            assert one.recv(100) == b"back"
        counters = lab.counters()
        assert counters["h4-leaf4"]["ba"]["packets"] == 6
        assert counters["h4-leaf4"]["ab"]["packets"] == 1
        found = probe_spines(lab, source="h1", destination="h4", ports=32)
        assert found.problems == []
        assert set(found.shares) == {"spine1", "spine2"}
