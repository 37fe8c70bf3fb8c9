"""Topologies for experiments on fairness and on unequal paths: the dumbbell, and spines that differ.

h1 --.                          .-- h3
left ====bottleneck==== right
h2 --'                          '-- h4
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from netns.base.naming import named
from netns.errors import ShapeError, TopologyError
from netns.netem.shape import Shape
from netns.topology.model import Link, Switch, Topology, check_range


def dumbbell(
    *,
    hosts_per_side: int = 1,
    bottleneck: Shape,
    access: Shape | None = None,
    mtu: int = 9000,
    name: str = "dumbbell",
    seed: int = 1,
) -> Topology:
    """Two switches, `left` and `right`; the first half of the hosts is on the left. Raises TopologyError.

    `bottleneck` shapes both directions between them, `access` those to the hosts. Shapes are used unchanged: see
    `topology.model.with_buffer` for a limit that matches a rate.
    """
    check_range("hosts_per_side", hosts_per_side, low=1, high=254)
    hosts = tuple(f"h{index + 1}" for index in range(2 * hosts_per_side))
    sides = ("left", "right")
    return Topology(
        name=name,
        mtu=mtu,
        seed=seed,
        hosts=hosts,
        switches=tuple(Switch(side, "leaf") for side in sides),
        links=(
            *(Link(host, sides[index // hosts_per_side], None, access) for index, host in enumerate(hosts)),
            Link("left", "right", bottleneck, bottleneck),
        ),
    )


def with_paths(
    topology: Topology, changes: Mapping[str, Mapping[str, Any]], *, at: str = "paths", base: Path = Path()
) -> Topology:
    """Return `topology` with changed links of some spines: spine -> the differences, in tc's notation.

    All else stays as on the other links; a derived limit follows. Raises TopologyError or ShapeError.
    """
    links = list(topology.links)
    for spine, fields in changes.items():
        if spine not in topology.spines:
            raise TopologyError(f"{at}.{spine}: no such spine; the spines are: {', '.join(topology.spines) or 'none'}")
        for index, link in enumerate(links):
            if spine in (link.a, link.b):
                with named(f"{at}.{spine}.", ShapeError):
                    ab, ba = ((shape or Shape()).changed(fields, base=base) for shape in (link.shape_ab, link.shape_ba))
                links[index] = replace(link, shape_ab=ab, shape_ba=ba)
    return replace(topology, links=tuple(links))
