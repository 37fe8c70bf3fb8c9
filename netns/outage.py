"""Links and nodes of a lab that fail, silently: whoever is at their ends learns it from nothing but silence.

Theory of operation. Neighbours are permanent entries (netns/plan.py). A link fails when both of its ends are given a
wrong hardware address for each other: frames still cross it, and are dropped at the far end as another machine's. So
one way serves every kind of link, shaped or not, in every fabric; no carrier goes, no route changes, no shape is lost.
What was in the delay line when the link failed still arrives. A node fails with all its links.

Failures add up: each is a file in the lab's directory, and a link works again when no file names it. The file is
written before the link is touched and removed after it is restored, so that a crash leaves nothing that `repair` does
not find.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final
from uuid import uuid4

from netns.addressing import addressing
from netns.errors import FabricError, TopologyError
from netns.fabric.netlink import take
from netns.lab import Lab
from netns.steps import AddNeighbour
from netns.topology import Link, Topology

NOBODY: Final = "02:53:52:ff:ff:ff"


@dataclass(frozen=True, slots=True)
class Failure:
    """One failure of one link or node."""

    name: str
    """As it was asked for."""

    links: tuple[str, ...]
    """Which links that is."""

    key: str
    """Tells it from others of the same name."""


def links_of(topology: Topology, name: str) -> tuple[Link, ...]:
    """The link called `name`, or all links of the node; TopologyError if there is neither."""
    if name in topology.nodes:
        return topology.links_of[name]
    found = tuple(link for link in topology.links if name in (link.name, f"{link.b}-{link.a}"))
    if not found:
        raise TopologyError(f"{name}: neither a link nor a node of {topology.name}; name one, as in leaf1-spine2")
    return found


def fail(lab: Lab, name: str) -> Failure:
    """Let a link ("leaf1-spine2") or a node ("spine2") lose everything from now on. Raises TopologyError."""
    failure = planned(lab, name)
    begin(lab, failure)
    return failure


def planned(lab: Lab, name: str) -> Failure:
    """A failure that has not begun; `repair` may be called for it in any case."""
    return Failure(name, tuple(link.name for link in links_of(lab.topology, name)), uuid4().hex[:12])


def begin(lab: Lab, failure: Failure) -> None:
    """Let a planned failure happen."""
    path = lab.directory.path / f"failure.{failure.key}.json"
    path.write_text(json.dumps({"name": failure.name, "links": failure.links}))
    _set(lab, [lab.topology.link(name) for name in failure.links], dead=True)


def repair(lab: Lab, failures: Iterable[Failure]) -> None:
    """End these failures; links that no other failure names work again."""
    failures = tuple(failures)
    for failure in failures:
        remaining = {link for other in active(lab) if other.key != failure.key for link in other.links}
        _set(lab, [lab.topology.link(name) for name in failure.links if name not in remaining], dead=False)
        (lab.directory.path / f"failure.{failure.key}.json").unlink(missing_ok=True)


def active(lab: Lab, name: str | None = None) -> tuple[Failure, ...]:
    """The failures that there are, or those asked for under `name`."""
    found = []
    for path in sorted(lab.directory.path.glob("failure.*.json")):
        try:
            values = json.loads(path.read_text())
            failure = Failure(values["name"], tuple(values["links"]), path.name.split(".")[1])
        except FileNotFoundError:  # repaired meanwhile
            continue
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise FabricError(f"{path}: not a record of a failure ({error}); delete the file") from None
        if name in (None, failure.name):
            found.append(failure)
    return tuple(found)


def dead_links(lab: Lab) -> Collection[str]:
    """Names of the links that carry nothing now."""
    return {link for failure in active(lab) for link in failure.links}


def _set(lab: Lab, links: Iterable[Link], *, dead: bool) -> None:
    addresses = addressing(lab.topology)
    steps = []
    for link in links:
        for node, neighbour in ((link.a, link.b), (link.b, link.a)):
            hardware = NOBODY if dead else addresses.hardware[neighbour, node]
            steps.append(AddNeighbour(lab.netns(node), neighbour, addresses.transfer[neighbour, node], hardware))
    take(steps)
