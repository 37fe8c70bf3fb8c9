"""Failures of links and nodes of a lab: silent, or with loss of carrier.

The ends of a link detect a silent failure only by missing packets. They detect a loss of carrier at once; other nodes
do not.

Theory of operation, silent. Neighbours are permanent entries (netns/lab/plan.py). A link fails when both of its ends
get a wrong hardware address for each other: frames still cross it, and are dropped at the far end as those of another
machine. So one method serves every kind of link, shaped or not, in both backends; no carrier, route or shape changes.
What was in the delay line when the link failed still arrives.

With loss of carrier. A TAP's carrier is cleared at both ends. A veth has a carrier while both of its ends are up: the
end of the failed node is taken down, or for a failed link its end `b` (the switch's end, if b is a host), and the other
end sees NO-CARRIER. In both cases the kernel stops using routes over the link, and removes its next hops from nexthop
groups. What the kernel removed is added again at the repair, from the plan, except routes over links that are still
down.

A node fails with all its links. Failures add up: each is a file in the lab's directory, and a link works again when no
file names it. The file is written before the link is changed and removed after it is restored, so that after a crash
`repair` finds every failure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final
from uuid import uuid4

from netns.backends.kernel.netlink import apply
from netns.errors import LabError, raise_all
from netns.lab.lab import Lab
from netns.lab.operations import (
    AddAddress,
    AddNeighbour,
    AddNexthop,
    AddNexthopGroup,
    AddRoute,
    InNamespace,
    Operation,
    SetCarrier,
    SetState,
    SyncCarrier,
)
from netns.lab.plan import plan
from netns.lab.state import Failure
from netns.topology.model import Link

UNUSED_MAC: Final = "02:53:52:ff:ff:ff"

End = tuple[str, str]
"""A node and its neighbour: one end of the link between them."""


def fail(lab: Lab, name: str, *, carrier: bool = False) -> Failure:
    """Let a link ("leaf1-spine2") or a node ("spine2") drop everything from now on. Raises TopologyError."""
    failure = planned(lab, name, carrier=carrier)
    begin(lab, failure)
    return failure


def planned(lab: Lab, name: str, *, carrier: bool = False) -> Failure:
    """Return a failure that has not begun; it can be repaired in any case. Raises TopologyError."""
    links = tuple(link.name for link in lab.topology.links_at(name))
    return Failure(lab.topology.canonical_name(name), links, uuid4().hex[:12], carrier)


def begin(lab: Lab, failure: Failure) -> None:
    """Begin a planned failure."""
    lab.directory.write_failure(failure)
    if failure.carrier:
        ends = _ends(lab, failure)
        apply([step for end in sorted(ends) for step in _lose_carrier(lab, end)])
        apply(_wait_for_carrier(lab, ends))
    else:
        _set_wrong_neighbours(lab, failure.links, dead=True)


def repair(lab: Lab, failures: Iterable[Failure]) -> None:
    """End those of these failures that are active; links that no other failure names work again.

    All are tried, whatever fails; then the errors are raised, several as one BackendError.
    """
    failed: list[Exception] = []
    for failure in failures:
        try:
            _repair(lab, failure)
        except LabError as error:
            failed.append(error)
    raise_all(failed)


def _repair(lab: Lab, failure: Failure) -> None:
    recorded = active(lab)
    others = [other for other in recorded if other.key != failure.key]
    if len(others) == len(recorded):  # it never began, or was repaired before its time
        return
    if failure.carrier:
        _restore(lab, _ends(lab, failure), others=[other for other in others if other.carrier])
    # Needed after a return of the carrier, too, because the kernel removes neighbours.
    silent = {name for other in others if not other.carrier for name in other.links}
    _set_wrong_neighbours(lab, [name for name in failure.links if name not in silent], dead=False)
    _set_wrong_neighbours(lab, [name for name in failure.links if name in silent], dead=True)
    lab.directory.remove_failure(failure)


def active(lab: Lab, name: str | None = None) -> tuple[Failure, ...]:
    """Return the active failures, or those of the link or node `name` only. Raises TopologyError."""
    found = lab.directory.failures()
    if name is None:
        return found
    wanted = lab.topology.canonical_name(name)
    return tuple(failure for failure in found if failure.name == wanted)


def _set_wrong_neighbours(lab: Lab, links: Iterable[str], *, dead: bool) -> None:
    """Set a wrong hardware address at both ends, or the right one."""
    steps = []
    for link in map(lab.topology.link, links):
        for node, neighbour in ((link.a, link.b), (link.b, link.a)):
            for addresses in map(lab.addressing, lab.versions):
                hardware = UNUSED_MAC if dead else addresses.hardware[neighbour, node]
                steps.append(AddNeighbour(lab.netns(node), neighbour, addresses.transfer[neighbour, node], hardware))
    apply(steps)


def _ends(lab: Lab, failure: Failure) -> set[End]:
    """Return the ends at which the failure clears the carrier."""
    found = set()
    for link in map(lab.topology.link, failure.links):
        if _is_tap(lab, link):
            found |= {(link.a, link.b), (link.b, link.a)}
        else:
            node = failure.name if failure.name in lab.topology.nodes else link.b
            node = link.other(node) if node in lab.topology.hosts and failure.name != node else node
            found.add((node, link.other(node)))
    return found


def _is_tap(lab: Lab, link: Link) -> bool:
    return lab.backend == "relay" and link.shaped


def _lose_carrier(lab: Lab, end: End) -> Iterator[InNamespace]:
    node, neighbour = end
    (link,) = lab.topology.links_at(f"{node}-{neighbour}")
    if _is_tap(lab, link):
        yield SetCarrier(lab.netns(node), neighbour, "off")
    else:
        yield SetState(lab.netns(node), neighbour, "down")


def _wait_for_carrier(lab: Lab, ends: set[End]) -> list[InNamespace]:
    """Return the operations that make the kernel process changes of carrier at both ends."""
    return [SyncCarrier(lab.netns(node), other) for pair in sorted(ends) for node, other in (pair, pair[::-1])]


def _restore(lab: Lab, ends: set[End], *, others: Iterable[Failure]) -> None:
    """Restore the carriers that no other failure keeps down, then everything that the kernel removed meanwhile."""
    kept = set().union(*(_ends(lab, other) for other in others))
    for node, neighbour in sorted(ends - kept):
        (link,) = lab.topology.links_at(f"{node}-{neighbour}")
        netns = lab.netns(node)
        apply([SetCarrier(netns, neighbour, "on") if _is_tap(lab, link) else SetState(netns, neighbour, "up")])
    apply(_wait_for_carrier(lab, ends))
    down, touched = (
        {(lab.netns(node), other) for pair in which for node, other in (pair, pair[::-1])} for which in (kept, ends)
    )
    apply(_to_repeat(plan(lab.topology, lab.backend), touched=touched, down=down))


def _to_repeat(steps: Iterable[Operation], *, touched: set[End], down: set[End]) -> Iterator[InNamespace]:
    """Yield the operations of a plan to repeat: those whose (namespace, interface) was touched and is not down.

    All of them replace what exists, so it does not matter which objects the kernel removed.
    """
    namespaces = {netns for netns, _ in touched}
    for step in steps:
        match step:
            case AddAddress() | AddNeighbour() | SyncCarrier() if (step.netns, step.ifname) in touched - down:
                yield step
            case AddNexthop() | AddNexthopGroup() | AddRoute() if step.netns in namespaces:
                yield from _without(step, down)


def _without(step: AddNexthop | AddNexthopGroup | AddRoute, down: set[End]) -> Iterator[InNamespace]:
    """Yield the operation with those of its next hops that are not down, if there are any."""
    match step:
        case AddNexthop() if (step.netns, step.hop.ifname) not in down:
            yield step
        case AddNexthopGroup():
            members = tuple(member for member in step.members if (member.netns, member.hop.ifname) not in down)
            if members:
                yield replace(step, members=members)
        case AddRoute():
            hops = tuple(hop for hop in step.hops if (step.netns, hop.ifname) not in down)
            if hops:
                yield replace(step, hops=hops)
