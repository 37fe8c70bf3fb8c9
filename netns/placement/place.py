"""Place a job on nodes: the host of each rank, and the distances between ranks.

Ranks are numbered in the order of the hosts' label paths, so that neighbours in rank are neighbours in the network: a
ring over the ranks crosses every domain's border twice. What a source does not report is not checked: if no node has a
capacity beside pods (a lab, EC2's topology), the job's resources are not checked, and a note says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain, repeat

from netns.errors import JobError, PlacementError
from netns.inventory.layers import hops, levels_of, path_of, shared_depth
from netns.inventory.nodes import HOSTNAME_LABEL, PODS, Node
from netns.placement.assign import assign
from netns.placement.job import Job
from netns.placement.model import DEFAULT_FLAVOR, DEFAULT_PROFILE, Assignment, Flavor, Profile, Unplaceable, Usage


@dataclass(frozen=True, slots=True)
class Placement:
    """The hosts of a job's ranks."""

    job: Job

    levels: tuple[str, ...]
    """Label keys, from the widest to the narrowest."""

    nodes: tuple[Node, ...]
    """Rank -> node."""

    assignment: Assignment
    """The same in a scheduler's terms: domains and counts."""

    notes: tuple[str, ...] = ()
    """What was not checked, one line each."""

    @property
    def hosts(self) -> tuple[str, ...]:
        """Rank -> name of its host."""
        return tuple(node.labels[HOSTNAME_LABEL] for node in self.nodes)

    @property
    def shared(self) -> tuple[str, str] | None:
        """The narrowest level that all ranks share, and its value; None if they share none."""
        depth = shared_depth([path_of(node, self.levels) for node in self.nodes])
        return None if depth == 0 else (self.levels[depth - 1], self.nodes[0].labels[self.levels[depth - 1]])

    @property
    def hops(self) -> tuple[tuple[int, ...], ...]:
        """[a][b]: switches between rank a and rank b."""
        return tuple(tuple(hops(a, b, self.levels) for b in self.nodes) for a in self.nodes)

    @property
    def ring_hops(self) -> tuple[int, ...]:
        """[rank]: switches between a rank and the next one of the ring."""
        return tuple(hops(a, b, self.levels) for a, b in zip(self.nodes, self.nodes[1:] + self.nodes[:1], strict=True))


def place(
    job: Job,
    nodes: Sequence[Node],
    *,
    usage: Iterable[Usage] = (),
    profile: Profile = DEFAULT_PROFILE,
    flavor: Flavor = DEFAULT_FLAVOR,
) -> Placement:
    """Place the ranks of `job`.

    Raises PlacementError if there is no room for them, JobError if the job requests a level that the nodes do not
    have, NodesError if a node lacks the labels of a level.
    """
    levels = levels_of(nodes)
    request = job.request()
    for level in filter(None, (request.level, *(each.level for each in request.slices))):
        if level not in levels:
            raise JobError(
                f"job {job.name}: level {level}: the nodes have no such level; theirs are {', '.join(levels)}"
            )
    notes = []
    if request.requests and not any(resource != PODS for node in nodes for resource in node.allocatable):
        notes.append(f"the nodes report no allocatable resources; not checked: {', '.join(sorted(request.requests))}")
        request = replace(request, requests={})
    found = assign(nodes, usage=usage, request=request, levels=levels, profile=profile, flavor=flavor)
    if isinstance(found, Unplaceable):
        raise (PlacementError if found.kind in ("not_fit", "no_domains_at_level") else JobError)(
            f"job {job.name}: {found}"
        )
    by_host = {node.labels[HOSTNAME_LABEL]: node for node in nodes}
    ranks = chain.from_iterable(repeat(by_host[domain.values[-1]], domain.count) for domain in found.domains)
    return Placement(job, levels, tuple(ranks), found, tuple(notes))
