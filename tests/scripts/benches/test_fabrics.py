"""scripts.benches.fabrics: queues and links of the cases' topologies."""

from __future__ import annotations

from netns.netem.shape import Shape
from scripts.benches.fabrics import HOST_QUEUE_PACKETS, PACKET_BYTES, buffered, clos
from scripts.benches.reference_fabric import LINK, fabric


def test_buffered__a_bdp_beyond_the_delay_line() -> None:
    port = buffered(rate_bps=100_000_000_000, delay_us=5, buffer_bytes=500_000)
    assert port.limit_packets == -(-(500_000 + 62_500) // PACKET_BYTES) + 1


def test_clos__hosts_send_from_a_deep_queue_into_the_port() -> None:
    port, spine = Shape(rate_bps=1000, limit_packets=7), Shape(rate_bps=2000, limit_packets=8)
    topology = clos((2, 1), spines=3, host_port=port, spine_link=spine, name="x", seed=4)
    assert [topology.switch_of(host) for host in topology.hosts] == ["leaf1", "leaf1", "leaf2"]
    link = topology.link("h3-leaf2")
    assert link.shape_ba == port
    assert link.shape_ab == Shape(rate_bps=1000, limit_packets=HOST_QUEUE_PACKETS)
    assert len([each for each in topology.links if each.shape_ab == each.shape_ba == spine]) == 6


def test_reference_fabric__changes_links_by_leaf_and_spine() -> None:
    slow = Shape(rate_bps=1000)
    topology = fabric(spines=2, name="x", seed=1, change=lambda _, spine: slow if spine == "spine2" else LINK)
    found = {link.name: (link.shape_ab, link.shape_ba) for link in topology.links}
    assert found["leaf1-spine1"] == (LINK, LINK)
    assert found["leaf2-spine2"] == (slow, slow)
    assert found["h1-leaf1"] == (None, None)
    assert LINK.limit_packets == 10
