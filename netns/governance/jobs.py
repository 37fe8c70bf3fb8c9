"""Jobs of files as workloads, and the hosts that an admission gives their ranks."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain, repeat

from netns.governance.model import Admission, Workload
from netns.placement.job import Job


def workload_of(job: Job, key: str, *, queue: str, priority: int = 0, created: float = 0.0) -> Workload:
    """Return a job as the scheduler sees it: its ranks, and their leader if there is one."""
    podsets = tuple(replace(each, mode="implied") if each.mode == "unconstrained" else each for each in job.requests())
    return Workload(key, queue=queue, podsets=podsets, priority=priority, created=created, uid=key)


def hosts_of(admission: Admission) -> tuple[str, ...]:
    """Return the host of each rank, the leader's first; empty if nothing was placed."""
    domains = (each.topology.domains for each in reversed(admission.podsets) if each.topology is not None)
    return tuple(chain.from_iterable(repeat(each.values[-1], each.count) for each in chain.from_iterable(domains)))
