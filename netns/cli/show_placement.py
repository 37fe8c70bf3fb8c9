"""The output of `srd-lab topology` and `srd-lab place`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

import click

from netns.base.tables import count, print_table, table
from netns.chart.branches import Branch
from netns.inventory.layers import short_name
from netns.inventory.nodes import HOSTNAME_LABEL
from netns.placement.place import Placement

MATRIX_RANKS: Final = 16
"""Up to so many ranks, distances are printed as a matrix; with more, as the number of pairs for each distance."""

JSON_MATRIX_RANKS: Final = 64
"""The same in JSON: with more ranks the matrix is mostly what is printed, and few read it."""


def topology_dict(whole: Branch, levels: Sequence[str]) -> dict[str, Any]:
    """Return for JSON each node's position, and for each layer the nodes that share it."""
    layers = [level for level in levels if level != HOSTNAME_LABEL]
    return {
        "levels": list(levels),
        "nodes": [{"name": node.name, **{level: node.labels[level] for level in levels}} for node in whole.nodes],
        "shared": {
            level: [{"path": list(part.path), "nodes": [node.name for node in part.nodes]} for part in whole.at(level)]
            for level in layers
        },
    }


def show_topology(whole: Branch, levels: Sequence[str]) -> None:
    """Print a row for each domain of the lowest layer: the domains above it, and its hosts."""
    layers = [level for level in levels if level != HOSTNAME_LABEL]
    parts = ", ".join(f"{len(whole.at(level))} of {short_name(level)}" for level in layers)
    click.echo(f"{count(whole.nodes, 'host')} in {parts}")
    rows = table(*(short_name(level) for level in layers), "hosts", "")
    above: tuple[str, ...] = ()
    for part in whole.at(layers[-1]):
        repeated = next((i for i, (a, b) in enumerate(zip(above, part.path, strict=False)) if a != b), len(above))
        shown = ["" if index < repeated else value for index, value in enumerate(part.path)]
        rows.add_row(*shown, str(len(part.nodes)), " ".join(node.name for node in part.nodes))
        above = part.path
    print_table(rows)


def placement_dict(placement: Placement, *, matrix: bool = False) -> dict[str, Any]:
    """Return the placement for JSON; the matrix of many ranks only if it is asked for."""
    shared = placement.shared
    printed = matrix or len(placement.nodes) <= JSON_MATRIX_RANKS
    return {
        "job": placement.job.name,
        "hosts": list(placement.hosts),
        "nodes": [node.name for node in placement.nodes],
        "levels": list(placement.levels),
        "shared": None if shared is None else {"level": shared[0], "value": shared[1]},
        "ring_hops": list(placement.ring_hops),
        "pairs_by_hops": {str(hops): pairs for hops, pairs in placement.hop_counts.items()},
        "hops": placement.hops.tolist() if printed else None,
    }


def compact_json(document: dict[str, Any]) -> str:
    """Return an object as JSON with a key on each line, and each row of a matrix on a line: thousands of ranks fit."""
    lines = []
    for key, value in document.items():
        is_matrix = isinstance(value, list) and value and isinstance(value[0], list)
        rows = ",\n    ".join(json.dumps(row, separators=(",", ":")) for row in value) if is_matrix else ""
        lines.append(f"  {json.dumps(key)}: " + (f"[\n    {rows}\n  ]" if is_matrix else json.dumps(value)))
    return "{\n" + ",\n".join(lines) + "\n}"


def show_placement(placement: Placement) -> None:
    """Print ranks and hosts, the layer that they share, and their distances."""
    shared, ranks = placement.shared, len(placement.nodes)
    where = "sharing no layer" if shared is None else f"all in {short_name(shared[0])} {shared[1]}"
    hosts = count(sorted(set(placement.hosts)), "host")
    click.echo(f"job {placement.job.name}: {count(placement.nodes, 'rank')} on {hosts}, {where}")
    layers = [level for level in placement.levels if level != HOSTNAME_LABEL]
    rows = table("rank", "host", *(short_name(level) for level in layers), "switches to the next rank")
    for rank, (node, hops) in enumerate(zip(placement.nodes, placement.ring_hops, strict=True)):
        rows.add_row(str(rank), placement.hosts[rank], *(node.labels[level] for level in layers), str(hops))
    print_table(rows)
    click.echo(f"switches around the ring: {sum(placement.ring_hops)}")
    if ranks <= MATRIX_RANKS:
        click.echo("switches between ranks:")
        matrix = table("rank", *(str(rank) for rank in range(ranks)))
        for rank, row in enumerate(placement.hops):
            matrix.add_row(str(rank), *(str(each) for each in row))
        print_table(matrix)
        return
    click.echo("pairs of ranks by switches between them:")
    for hops, number in placement.hop_counts.items():
        click.echo(f"  {hops}: {number}")
