"""Place a job on nodes: the host of each rank, and the distances between ranks.

Ranks are numbered in the order of the hosts' label paths, so that neighbours in rank are neighbours in the network: a
ring over the ranks crosses every domain's border twice. A leader is rank 0, and the others follow in that order. When
the ranks of a lost host move, all others keep their numbers.

What a source does not report is not checked, and notes say so: if no node has a capacity beside pods (a lab, EC2's
topology), the job's resources are not; if nodes report capacities and the running pods are not given, these are not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, groupby, repeat

import numpy as np
import numpy.typing as npt

from netns.errors import JobError, PlacementError
from netns.inventory.layers import hop_counts, hop_matrix, hops, levels_of, path_of, shared_depth
from netns.inventory.nodes import HOSTNAME_LABEL, PODS, Node
from netns.placement.explain import IMPOSSIBLE, explain
from netns.placement.groups import assign_all
from netns.placement.job import Job
from netns.placement.model import (
    DEFAULT_PROFILE,
    DomainAssignment,
    PlacementRequest,
    Profile,
    Replacement,
    TopologyAssignment,
    Unplaceable,
    Usage,
)


@dataclass(frozen=True, slots=True)
class Placement:
    """The hosts of a job's ranks."""

    job: Job

    levels: tuple[str, ...]
    """Label keys, from the widest to the narrowest."""

    nodes: tuple[Node, ...]
    """Rank -> node."""

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
    def hops(self) -> npt.NDArray[np.uint8]:
        """[a][b]: switches between rank a and rank b; a byte for each pair, so for thousands of ranks at most."""
        return hop_matrix(self.nodes, self.levels)

    @property
    def hop_counts(self) -> Mapping[int, int]:
        """Switches -> the number of pairs of ranks with so many between them."""
        return hop_counts(self.nodes, self.levels)

    @property
    def ring_hops(self) -> tuple[int, ...]:
        """[rank]: switches between a rank and the next one of the ring."""
        return tuple(hops(a, b, self.levels) for a, b in zip(self.nodes, self.nodes[1:] + self.nodes[:1], strict=True))


def place(
    job: Job,
    nodes: Sequence[Node],
    *,
    usage: Iterable[Usage] | None = None,
    profile: Profile = DEFAULT_PROFILE,
    where: str = "the inventory",
) -> Placement:
    """Place the ranks of `job`. `usage`: the pods that run already; None: not known. `where` names `nodes` in errors.

    Raises PlacementError if there is no room for them, JobError if the job requests a level that the nodes do not
    have, NodesError if a node lacks the labels of a level.
    """
    asked = _Asked.of(job, nodes, where=where, usage_known=usage is not None)
    found = assign_all(nodes, usage=usage or (), requests=asked.requests, levels=asked.levels, profile=profile)
    assignments = [asked.checked(found[request.name]) for request in asked.requests]
    hosts = chain.from_iterable(_hosts(assignment) for assignment in reversed(assignments))  # the leader is rank 0
    return asked.placement(hosts)


def replace_hosts(
    job: Job,
    nodes: Sequence[Node],
    *,
    hosts: Sequence[str],
    lost: Sequence[str],
    usage: Iterable[Usage] | None = None,
    profile: Profile = DEFAULT_PROFILE,
    where: str = "the inventory",
) -> Placement:
    """Move the ranks of the hosts `lost` elsewhere; all others stay. `hosts`: rank -> host, as they run now.

    A lost host may be given by the name of its node. `usage` has the ranks that stay, too; without it only those are
    counted. Raises what `place` does.
    """
    if len(hosts) != job.ranks:
        raise JobError(f"job {job.name}: has {job.ranks} ranks, but the current placement {len(hosts)}")
    of_node = {node.name: node.labels.get(HOSTNAME_LABEL, "") for node in nodes}
    waiting = list(dict.fromkeys(each if each in hosts else of_node.get(each, each) for each in lost))
    for host in waiting:
        if host not in hosts:
            raise JobError(f"job {job.name}: {host} runs none of its ranks")
    asked = _Asked.of(job, nodes, where=where, usage_known=usage is not None)
    given, now, done = None if usage is None else tuple(usage), tuple(hosts), set[str]()
    while waiting:
        moving = waiting.pop(0)
        done.add(moving)
        there = [_emptied(node, waiting) for node in nodes if of_node[node.name] not in done]
        used = asked.usage(now, before=hosts, given=given, lost={moving, *waiting})
        known = {host for host in now if host not in waiting or host in of_node.values()}
        parts = {name: [host for host in part if host in known] for name, part in asked.parts(now).items()}
        found = assign_all(
            there,
            usage=used,
            requests=[request for request in asked.requests if moving in parts[request.name]],
            levels=asked.levels,
            profile=profile,
            replacement=Replacement(moving, {name: _assignment(part) for name, part in parts.items()}),
        )
        moved = {
            name: list((Counter(_hosts(asked.checked(result))) - Counter(parts[name])).elements())
            for name, result in found.items()
        }
        now = tuple(
            moved[name].pop(0) if host == moving else host for name, part in asked.parts(now).items() for host in part
        )
    return asked.placement(now)


def _emptied(node: Node, lost: Collection[str]) -> Node:
    """Return a node as it is or, if it is lost, without room: what is still on it keeps its place in the network."""
    if node.labels.get(HOSTNAME_LABEL) not in lost:
        return node
    return replace(node, ready=True, unschedulable=False, allocatable=dict.fromkeys({*node.allocatable, PODS}, 0))


@dataclass(frozen=True, slots=True)
class _Asked:
    """A job's requests of nodes, checked against their levels."""

    job: Job
    nodes: Sequence[Node]
    levels: tuple[str, ...]
    requests: tuple[PlacementRequest, ...]
    """The ranks, and their leader if there is one."""
    notes: tuple[str, ...]
    where: str

    @classmethod
    def of(cls, job: Job, nodes: Sequence[Node], *, where: str, usage_known: bool) -> _Asked:
        levels, requests = levels_of(nodes), job.requests()
        for level in filter(None, (requests[0].level, *(each.level for each in requests[0].slices))):
            if level not in levels:
                raise JobError(
                    f"job {job.name}: level {level}: the nodes have no such level; theirs are {', '.join(levels)}"
                )
        notes = []
        wanted = sorted({resource for request in requests for resource in request.requests})
        if any(resource != PODS for node in nodes for resource in node.allocatable):
            if not usage_known:
                notes.append(
                    f"the pods that run in {where} are not given, so it counts as empty; give them with --pods "
                    "(kubectl get pods --all-namespaces -o json)"
                )
        elif wanted:
            notes.append(f"the nodes report no allocatable resources; not checked: {', '.join(wanted)}")
            requests = tuple(replace(request, requests={}) for request in requests)
        return cls(job, nodes, levels, requests, tuple(notes), where)

    def checked(self, found: TopologyAssignment | Unplaceable) -> TopologyAssignment:
        """Return an assignment. Raises PlacementError or JobError, in the words of the job's file, if it is none."""
        if isinstance(found, TopologyAssignment):
            return found
        why = self._stale(found.argument) if found.kind == "stale" else None
        why = why or explain(found, request=self.requests[0], where=self.where)
        raise (PlacementError if found.kind in IMPOSSIBLE else JobError)(f"job {self.job.name}: {why}")

    def _stale(self, host: str) -> str | None:
        """Return why ranks cannot stay on a host; None if it is in no list of nodes."""
        node = next((each for each in self.nodes if each.labels.get(HOSTNAME_LABEL) == host), None)
        if node is None:
            return None
        states = [*(["cordoned"] if node.unschedulable else ()), *(() if node.ready else ["not ready"])]
        state = " and ".join(states) or "without labels of its place"
        return f"{host} runs ranks of the job, but is {state} in {self.where}; if it is lost, replace it, too"

    def parts(self, hosts: Sequence[str]) -> dict[str, Sequence[str]]:
        """Return the hosts of each request's ranks, by its name: the leader's is the first."""
        if self.job.leader is None:
            return {self.requests[0].name: hosts}
        return {self.requests[-1].name: hosts[:1], self.requests[0].name: hosts[1:]}

    def usage(
        self, now: Sequence[str], *, before: Sequence[str], given: Sequence[Usage] | None, lost: Collection[str]
    ) -> list[Usage]:
        """Return the pods that take room: those given, or the job's ranks that stay; and the ranks that moved."""
        pods = Counter(
            (name, host)
            for (name, part), (_, part_before) in zip(self.parts(now).items(), self.parts(before).items(), strict=True)
            for host, was in zip(part, part_before, strict=True)
            if host not in lost and (given is None or host != was)
        )
        requests = {request.name: request.requests for request in self.requests}
        ranks = [Usage(requests[name], count, domain=(host,)) for (name, host), count in pods.items()]
        return [*(given or ()), *ranks]

    def placement(self, hosts: Iterable[str]) -> Placement:
        """Return the placement of the ranks on these hosts, in their order."""
        by_host = {node.labels[HOSTNAME_LABEL]: node for node in self.nodes}
        return Placement(self.job, self.levels, tuple(by_host[host] for host in hosts), self.notes)


def _hosts(assignment: TopologyAssignment) -> Iterable[str]:
    """Yield the host of each pod, in the order of label paths."""
    return chain.from_iterable(repeat(domain.values[-1], domain.count) for domain in assignment.domains)


def _assignment(hosts: Iterable[str]) -> TopologyAssignment:
    counts = Counter(hosts)
    return TopologyAssignment(
        (HOSTNAME_LABEL,), tuple(DomainAssignment((host,), count) for host, count in counts.items())
    )


def hostfile(placement: Placement) -> str:
    """Return `HOST slots=N` lines, an MPI host file; Open MPI and others then number their ranks as the placement does.

    A host file says how many ranks a host has, and which by the order of its lines. So it has no way to say that a host
    has ranks before and after those of another, as a leader's host may, or one that takes the ranks of a lost host.

    Raises JobError for a host with ranks that do not follow each other.
    """
    slots = [(host, len(list(ranks))) for host, ranks in groupby(placement.hosts)]
    for host, times in Counter(host for host, _ in slots).items():
        if times > 1:
            ranks = ", ".join(str(rank) for rank, each in enumerate(placement.hosts) if each == host)
            raise JobError(
                f"job {placement.job.name}: {host} has the ranks {ranks}, with others between them, and a host file "
                "cannot say so (Open MPI adds up a host's lines, so others run there); --json has the host of each rank"
            )
    return "".join(f"{host} slots={count}\n" for host, count in slots)
