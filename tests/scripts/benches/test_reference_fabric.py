"""scripts.benches.reference_fabric: links of the cases' topologies."""

from __future__ import annotations

from netns.netem.shape import Shape
from scripts.benches.reference_fabric import LINK, fabric


def test_reference_fabric__changes_links_by_leaf_and_spine() -> None:
    slow = Shape(rate_bps=1000)
    topology = fabric(spines=2, name="x", seed=1, change=lambda _, spine: slow if spine == "spine2" else LINK)
    found = {link.name: (link.shape_ab, link.shape_ba) for link in topology.links}
    assert found["leaf1-spine1"] == (LINK, LINK)
    assert found["leaf2-spine2"] == (slow, slow)
    assert found["h1-leaf1"] == (None, None)
    assert LINK.limit_packets == 10
