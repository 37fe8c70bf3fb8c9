"""A trace of jobs on a cluster, in virtual time: the scheduler is the real one, jobs take their time and no processor.

Each team has a cluster queue with an equal share of the GPUs in one cohort. *Governance* off is one queue for all,
first come first served without preemption. *Topology* on asks for the ranks of a job to be in one rack if possible, and
every job has nodes of its own; off, quota alone counts, and for the traffic a job's ranks are on random nodes. A
preempted job goes on where it was, as after a checkpoint.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from random import Random
from sys import intern
from typing import Final

from netns.base.fairness import jain_index
from netns.governance.apply import gone, settle
from netns.governance.cluster import Cluster
from netns.governance.jobs import hosts_of
from netns.governance.model import ClusterQueue, Fungibility, LocalQueue, Preemption, Quota, ResourceGroup, Workload
from netns.governance.settings import BOTH_STRATEGIES, Settings
from netns.governance.trace import TraceJob
from netns.inventory.nodes import HOSTNAME_LABEL, PODS, Node, layer_label
from netns.placement.model import PlacementRequest, ResourceFlavor

GPU: Final = "nvidia.com/gpu"
NODE_GPUS: Final = 8
RACK_NODES: Final = 16
BLOCK_RACKS: Final = 16
RACK: Final = layer_label(3)
MAX_ROUNDS: Final = 10
"""Of victims at one moment: borrowers may take turns in preempting each other, which must not hold up the time."""
LEVELS: Final = (layer_label(1), layer_label(2), RACK, HOSTNAME_LABEL)


@dataclass(slots=True)
class GovernanceResult:
    """The figures of one run."""

    governance: bool
    topology: bool
    waits_s: list[float] = field(default_factory=list)
    """Of each job that started, from its submission to its first start."""
    team_waits_s: dict[str, list[float]] = field(default_factory=dict)
    preemptions: int = 0
    utilisation: float = 0.0
    """GPU time of jobs over that of the cluster, until the last arrival."""
    cross_rack_fraction: float = 0.0
    """Of the neighbours in the rings of all jobs' ranks, weighted by time: those in different racks."""
    fairness: float = 0.0
    """Jain's index over teams, of 1 / (1 + mean wait / mean duration): 1 if all are slowed down alike."""
    unfinished: int = 0
    never_fit: int = 0
    """Jobs larger than what their queue could ever get."""


def cluster_nodes(nodes: int) -> list[Node]:
    """Return so many nodes of 8 GPUs: racks of 16, blocks of 16 racks."""
    room, found = {GPU: NODE_GPUS, PODS: 110}, []
    for index in range(nodes):
        block, rack = divmod(index // RACK_NODES, BLOCK_RACKS)
        values = ("core", f"block{block:03}", f"rack{block:03}-{rack:02}", f"node{index:05}")
        labels = {level: intern(value) for level, value in zip(LEVELS, values, strict=True)}
        found.append(Node(values[-1], labels=labels, allocatable=room))
    return found


def _cluster(teams: Sequence[str], gpus: int, *, governance: bool, topology: bool) -> Cluster:
    def queue(name: str, quota: int, cohort: str | None) -> ClusterQueue:
        group = ResourceGroup((GPU,), (("gpu", {GPU: Quota(quota)}),))
        rules = Preemption("LowerPriority", "Any") if governance else Preemption()
        return ClusterQueue(name, cohort, (group,), preemption=rules, fungibility=Fungibility())

    share, rest = divmod(gpus, len(teams))
    queues = (
        [queue(team, share + (index < rest), "all") for index, team in enumerate(teams)]
        if governance
        else [queue("all", gpus, None)]
    )
    return Cluster(
        flavors=(ResourceFlavor("gpu", topology="racks" if topology else None),),
        queues=tuple(queues),
        local_queues=tuple(LocalQueue(f"{team}/jobs", team if governance else "all") for team in teams),
        topologies={"racks": LEVELS},
        settings=Settings(fair_sharing=BOTH_STRATEGIES if governance else None, preemptors_first=True),
    )


class GovernanceSimulation:
    """One run."""

    def __init__(
        self, trace: Sequence[TraceJob], *, nodes: int, governance: bool, topology: bool, seed: int = 1
    ) -> None:
        self.result = GovernanceResult(governance, topology)
        self._trace, self._topology = trace, topology
        self._nodes = cluster_nodes(nodes)
        self._gpus = nodes * NODE_GPUS
        teams = sorted({job.team for job in trace})
        cluster = _cluster(teams, self._gpus, governance=governance, topology=topology)
        self._state = cluster.state(self._nodes if topology else ())
        self._rack_of = {node.name: node.labels[RACK] for node in self._nodes}
        self._random = Random(seed)  # noqa: S311 - a simulation
        self._jobs = {f"{job.team}/j{index}": job for index, job in enumerate(trace)}
        self._left_s = {key: job.duration_s for key, job in self._jobs.items()}
        self._started_at: dict[str, float] = {}
        self._first_start_at: dict[str, float] = {}
        self._run_number: dict[str, int] = {}
        self._ends: list[tuple[float, int, str, int]] = []
        self._numbers = count()
        self._busy_s = self._cross_s = self._pairs_s = 0.0

    def run(self) -> GovernanceResult:
        """Play the whole trace; jobs that still wait after the last end never fit."""
        arrivals = list(self._jobs.items())[::-1]
        last_arrival_at = self._trace[-1].submitted_s
        now = 0.0
        while arrivals or self._ends:
            now = min(
                arrivals[-1][1].submitted_s if arrivals else float("inf"),
                self._ends[0][0] if self._ends else float("inf"),
            )
            changed = False
            while self._ends and self._ends[0][0] <= now:
                changed |= self._end(*heapq.heappop(self._ends))
            while arrivals and arrivals[-1][1].submitted_s <= now:
                self._submit(*arrivals.pop(), now)
                changed = True
            if changed:
                self._schedule(now, last_arrival_at)
        return self._figures(last_arrival_at)

    def _submit(self, key: str, job: TraceJob, now: float) -> None:
        ranks, gpus = max(1, -(-job.gpus // NODE_GPUS)), min(job.gpus, NODE_GPUS)
        asked = PlacementRequest("main", ranks, {GPU: gpus})
        podset = replace(asked, mode="preferred", level=RACK) if self._topology else asked
        self._state.submit(
            Workload(key, queue=f"{job.team}/jobs", podsets=(podset,), priority=job.priority, created=now, uid=key),
            now=now,
        )

    def _schedule(self, now: float, last_arrival_at: float) -> None:
        for _ in range(MAX_ROUNDS):
            victims = []
            for outcome in settle(self._state, now=now):
                for admitted in outcome.admitted:
                    self._start(admitted.workload, now)
                victims += [each.workload for each in outcome.preempted]
            for key in victims:
                self._stop(key, now, last_arrival_at)
                gone(self._state, self._state.workloads[key], now=now)
                self.result.preemptions += 1
            if not victims:
                return

    def _start(self, key: str, now: float) -> None:
        self._started_at[key] = now
        self._first_start_at.setdefault(key, now)
        number = self._run_number[key] = next(self._numbers)
        heapq.heappush(self._ends, (now + self._left_s[key], number, key, number))

    def _end(self, at: float, _order: int, key: str, number: int) -> bool:
        if self._run_number.get(key) != number:
            return False  # it was preempted meanwhile
        self._stop(key, at, self._trace[-1].submitted_s)
        self._state.forget(key, now=at)
        return True

    def _stop(self, key: str, now: float, last_arrival_at: float) -> None:
        """Take note of what a job has done since its start."""
        job, started_at = self._jobs[key], self._started_at.pop(key)
        ran_s = now - started_at
        self._left_s[key] -= ran_s
        del self._run_number[key]
        counted_s = max(0.0, min(now, last_arrival_at) - started_at)
        self._busy_s += counted_s * job.gpus
        ranks = max(1, -(-job.gpus // NODE_GPUS))
        if ranks > 1:
            racks = self._racks(key) if self._topology else self._scattered(ranks)
            self._pairs_s += ran_s * len(racks)
            self._cross_s += ran_s * sum(a != b for a, b in zip(racks, racks[1:] + racks[:1], strict=True))

    def _racks(self, key: str) -> list[str]:
        admission = self._state.workloads[key].admission
        assert admission is not None  # noqa: S101 - it has run
        return [self._rack_of[host] for host in hosts_of(admission)]

    def _scattered(self, ranks: int) -> list[str]:
        """Return the racks of ranks that a scheduler placed which ignores the network."""
        return [self._nodes[index].labels[RACK] for index in self._random.sample(range(len(self._nodes)), ranks)]

    def _figures(self, last_arrival_at: float) -> GovernanceResult:
        result = self.result
        for key, at in self._first_start_at.items():
            job = self._jobs[key]
            wait_s = at - job.submitted_s
            result.waits_s.append(wait_s)
            result.team_waits_s.setdefault(job.team, []).append(wait_s)
        result.never_fit = len(self._jobs) - len(self._first_start_at)
        result.unfinished = sum(1 for line in self._state.lines.values() for _ in (*line.active, *line.parked))
        result.utilisation = self._busy_s / (self._gpus * last_arrival_at)
        result.cross_rack_fraction = self._cross_s / self._pairs_s if self._pairs_s else 0.0
        durations = dict.fromkeys(result.team_waits_s, 0.0)
        for key in self._first_start_at:
            durations[self._jobs[key].team] += self._jobs[key].duration_s
        speeds = [1 / (1 + sum(waits) / durations[team]) for team, waits in result.team_waits_s.items()]
        result.fairness = jain_index(speeds) if speeds else 1.0
        return result
