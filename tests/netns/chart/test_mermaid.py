"""netns.chart.mermaid: text that Mermaid's parser accepts, whatever the names."""

from __future__ import annotations

import re

from netns.chart.branches import branches
from netns.chart.mermaid import MAX_EDGES, mermaid
from netns.inventory.fabric_layers import nodes_of
from netns.inventory.nodes import HOSTNAME_LABEL, Node, layer_label
from netns.topology.model import leaf_spine

LINE = re.compile(r'  (?:A\["[^"]*"\]|(\w+) --> (\w+)(?:\["[^"]*"\]|\(\["[^"]*"\]\)))')


def node(name: str, *values: str) -> Node:
    labels = {layer_label(layer): value for layer, value in enumerate(values, 1)}
    return Node(name, labels={**labels, HOSTNAME_LABEL: name})


def edges(text: str) -> list[tuple[str, str]]:
    head, *lines = text.splitlines()
    assert head == "flowchart TD"
    matches = [LINE.fullmatch(line) for line in lines]
    assert all(matches), text
    return [(match[1], match[2]) for match in matches if match and match[1]]


def test_mermaid__a_leaf_spine() -> None:
    text = mermaid(branches(nodes_of(leaf_spine(name="demo", leaves=2, spines=1))))
    assert text == (
        "flowchart TD\n"
        '  A["Cluster Topology<br/>2 hosts"]\n'
        '  A --> L1_demo["layer 1<br/>demo"]\n'
        '  L1_demo --> L2_spine1["layer 2<br/>spine1"]\n'
        '  L2_spine1 --> L3_leaf1["layer 3<br/>leaf1"]\n'
        '  L3_leaf1 --> N_h1(["h1"])\n'
        '  L2_spine1 --> L3_leaf2["layer 3<br/>leaf2"]\n'
        '  L3_leaf2 --> N_h2(["h2"])\n'
    )


def test_mermaid__repeated_values_have_separate_boxes() -> None:
    found = edges(mermaid(branches([node("a", "1", "x", "r"), node("b", "2", "x", "r"), node("c", "2", "y", "r")])))
    children = [child for _, child in found]
    assert len(children) == len(set(children)) == 2 + 3 + 3 + 3
    assert {"L2_x", "L2_x_2", "L3_r", "L3_r_2", "L3_r_3"} <= set(children)


def test_mermaid__names_cannot_break_out_of_their_box() -> None:
    text = mermaid(branches([node('h"]; click A "x', 'a"<b>', "#1", "\n--> B")]))
    assert text.count('"') % 2 == 0
    assert "#quot;#lt;b#gt;" in text
    assert len(edges(text)) == 4


def test_mermaid__many_hosts_become_one_box_a_lowest_layer() -> None:
    nodes = [node(f"h{index}", "1", "1", f"r{index % 20}") for index in range(MAX_EDGES + 100)]
    found = edges(mermaid(branches(nodes)))
    assert len(found) == 2 + 20 + 20
    assert ("L3_r7", "L3_r7_hosts") in found
