"""Network-node layers: the parts of the network in which a node lies, by name, and the distance of two nodes.

AWS numbers its layers from the top: two instances that share layer 3 (4, for instance types that have it) are attached
to the same switch; those that share only layer 1 are the farthest apart that still share a layer. Below the layers are
the ultraserver, if there is one, and the host.

Distance is the number of switches on the shortest path in a Clos: 0 on one host, 1 under the lowest layer, 2 more for
each layer further up; if nothing is shared, as if one more layer joined them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt

from netns.errors import NodesError
from netns.inventory.nodes import HOSTNAME_LABEL, LAYER_PREFIX, MAX_LAYERS, ULTRASERVER_LABEL, Node, layer_label

LEVELS: Final = (*(layer_label(layer) for layer in range(1, MAX_LAYERS + 1)), ULTRASERVER_LABEL, HOSTNAME_LABEL)
"""All levels that nodes may have, from the widest to the narrowest."""

MIN_LAYERS: Final = 3
NEEDED: Final = (*(layer_label(layer) for layer in range(1, MIN_LAYERS + 1)), HOSTNAME_LABEL)
"""Levels without which the position of a node is unknown."""

_NUMBER: Final = re.compile(r"(?:(?:network-node-)?layer-?)?([1-4])")
_SHORT: Final = {
    "host": HOSTNAME_LABEL,
    "hostname": HOSTNAME_LABEL,
    "ultraserver": ULTRASERVER_LABEL,
    "ultraserver-id": ULTRASERVER_LABEL,
}


def level_named(name: str | int) -> str:
    """Return the label key of `name`: 3, layer-3, host, ultraserver-id; any other text is a label key itself."""
    text = str(name).strip()
    number = _NUMBER.fullmatch(text)
    return layer_label(int(number[1])) if number else _SHORT.get(text, text)


def short_name(level: str) -> str:
    """Return the short name of a label key: layer 3, host; other keys unchanged."""
    if level.startswith(LAYER_PREFIX):
        return f"layer {level.removeprefix(LAYER_PREFIX)}"
    return "host" if level == HOSTNAME_LABEL else level


def levels_of(nodes: Sequence[Node]) -> tuple[str, ...]:
    """Return the levels that all `nodes` have: layers 1 to 3, the host, and those between them that exist.

    Raises NodesError, with node and label, if a node lacks a required one.
    """
    if not nodes:
        raise NodesError("no nodes; there is nothing to place on")
    for node in nodes:
        for level in NEEDED:
            if not node.labels.get(level):
                raise NodesError(
                    f"node {node.name}: has no label {level}; label it, or leave such nodes out (--skip-unlabelled)"
                )
    return tuple(level for level in LEVELS if all(node.labels.get(level) for node in nodes))


def labelled(nodes: Iterable[Node]) -> tuple[list[Node], list[Node]]:
    """Split nodes into those with layers 1 to 3 and a hostname, and the others."""
    kept: list[Node] = []
    others: list[Node] = []
    for node in nodes:
        (kept if all(node.labels.get(level) for level in NEEDED) else others).append(node)
    return kept, others


def path_of(node: Node, levels: Sequence[str]) -> tuple[str, ...]:
    """Return the label values of `node` from the widest level to the narrowest."""
    return tuple(node.labels[level] for level in levels)


def shared_depth(paths: Sequence[tuple[str, ...]]) -> int:
    """Return how many levels, from the widest on, all `paths` share."""
    depth = 0
    for values in zip(*paths, strict=False):
        if len(set(values)) > 1:
            break
        depth += 1
    return depth


def hops(a: Node, b: Node, levels: Sequence[str]) -> int:
    """Return the number of switches between two nodes; the ultraserver does not count among `levels`."""
    layers = layers_of(levels)
    if a.labels[HOSTNAME_LABEL] == b.labels[HOSTNAME_LABEL]:
        return 0
    shared = shared_depth([path_of(a, layers), path_of(b, layers)])
    return 2 * (len(layers) - shared) + 1


def hop_matrix(nodes: Sequence[Node], levels: Sequence[str]) -> npt.NDArray[np.uint8]:
    """Return `hops` between all pairs of nodes, [a][b]: a byte each."""
    layers = layers_of(levels)
    matrix = np.full((len(nodes), len(nodes)), 2 * len(layers) + 1, np.uint8)
    for depth in range(1, len(layers) + 1):
        matrix -= 2 * _equal([path_of(node, layers[:depth]) for node in nodes])
    matrix[_equal([node.labels[HOSTNAME_LABEL] for node in nodes]).astype(bool)] = 0
    return matrix


def hop_counts(nodes: Sequence[Node], levels: Sequence[str]) -> dict[int, int]:
    """Return the number of pairs of nodes by the switches between them; in linear time, so for any number of nodes."""
    layers = layers_of(levels)
    groups = [Counter(path_of(node, layers[:depth]) for node in nodes) for depth in range(len(layers) + 1)]
    sharing = [sum(map(_pairs, group.values())) for group in groups]
    sharing.append(sum(map(_pairs, Counter(node.labels[HOSTNAME_LABEL] for node in nodes).values())))
    exactly = [wider - narrower for wider, narrower in pairwise(sharing)] + sharing[-1:]
    distances = [2 * (len(layers) - depth) + 1 for depth in range(len(layers) + 1)] + [0]
    return {distance: count for distance, count in zip(reversed(distances), reversed(exactly), strict=True) if count}


def layers_of(levels: Sequence[str]) -> list[str]:
    """Return the network-node layers among `levels`."""
    return [level for level in levels if level.startswith(LAYER_PREFIX)]


def _equal(values: Sequence[object]) -> npt.NDArray[np.uint8]:
    """Return a matrix with 1 where two values are equal."""
    numbers: dict[object, int] = {}
    of = np.array([numbers.setdefault(value, len(numbers)) for value in values])
    equal: npt.NDArray[np.uint8] = (of[:, None] == of[None, :]).view(np.uint8)
    return equal


def _pairs(count: int) -> int:
    return count * (count - 1) // 2
