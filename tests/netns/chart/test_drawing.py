"""netns.chart.drawing: well-formed, complete, without overlaps."""

from __future__ import annotations

from xml.etree import ElementTree as ET

import pytest

from netns.chart.branches import branches
from netns.chart.drawing import BOX, MAX_BOXES, drawing
from netns.inventory.fabric_layers import nodes_of, switches_of
from netns.inventory.nodes import HOSTNAME_LABEL, Node, layer_label
from netns.topology.clos import clos
from netns.topology.model import Topology, leaf_spine

SVG = "{http://www.w3.org/2000/svg}"


def boxes(svg: str) -> list[tuple[float, float, float]]:
    root = ET.fromstring(svg)  # noqa: S314 - our own output
    return [
        (float(rect.attrib["x"]), float(rect.attrib["y"]), float(rect.attrib["width"]))
        for rect in root.iter(f"{SVG}rect")
    ]


def test_drawing__a_box_for_each_part_and_a_line_to_each_child() -> None:
    whole = branches(nodes_of(leaf_spine(name="demo", leaves=3, hosts_per_leaf=4)))
    root = ET.fromstring(drawing(whole, switches={}))  # noqa: S314 - our own output
    parts = len(list(whole.walk())) - 1
    assert len(list(root.iter(f"{SVG}rect"))) == parts == 1 + 1 + 3 + 12
    assert len(list(root.iter(f"{SVG}path"))) == parts - 1
    texts = [text.text for text in root.iter(f"{SVG}text")]
    assert texts[:4] == ["layer 1", "layer 2", "layer 3", "host"]
    assert {"demo", "leaf2", "h12"} <= set(texts)


def test_drawing__a_box_for_each_spine_and_a_line_from_each_to_each_leaf() -> None:
    topology = leaf_spine(name="demo", leaves=3, spines=4, hosts_per_leaf=2)
    root = ET.fromstring(drawing(branches(nodes_of(topology)), switches=switches_of(topology)))  # noqa: S314 - our own
    texts = [text.text for text in root.iter(f"{SVG}text")]
    assert [text for text in texts if text and text.startswith("spine")] == ["spine1", "spine2", "spine3", "spine4"]
    assert len(list(root.iter(f"{SVG}path"))) == 4 + 4 * 3 + 6


def test_drawing__too_many_spines_are_one_box() -> None:
    topology = leaf_spine(name="demo", leaves=2, spines=MAX_BOXES + 1)
    assert "spine1-spine17" in drawing(branches(nodes_of(topology)), switches=switches_of(topology))


@pytest.mark.parametrize(
    "topology",
    [
        leaf_spine(name="demo", leaves=5, hosts_per_leaf=3),
        leaf_spine(name="demo", leaves=1, spines=8, hosts_per_leaf=2),
        clos(spines=7, aggregations_per_block=5, leaves_per_block=1, hosts_per_leaf=2),
    ],
    ids=["few spines", "more spines than hosts", "three tiers"],
)
def test_drawing__no_box_covers_another_and_all_lie_within(topology: Topology) -> None:
    svg = drawing(branches(nodes_of(topology)), switches=switches_of(topology))
    root = ET.fromstring(svg)  # noqa: S314 - our own output
    found = boxes(svg)
    for index, (x, y, width) in enumerate(found):
        assert x >= 0
        assert x + width <= float(root.attrib["width"])
        assert 0 <= y <= y + BOX <= float(root.attrib["height"])
        for other_x, other_y, other_width in found[index + 1 :]:
            assert x + width <= other_x or other_x + other_width <= x or abs(y - other_y) >= BOX


def test_drawing__names_are_escaped() -> None:
    labels = {layer_label(layer): "<script>" for layer in (1, 2, 3)}
    svg = drawing(branches([Node("n", labels={**labels, HOSTNAME_LABEL: "a&b"})]), switches={})
    assert "<script>" not in svg
    assert "a&amp;b" in svg
