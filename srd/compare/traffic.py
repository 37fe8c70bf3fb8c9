"""Workloads as data, and the flows that they are for a seed. Pure."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from netns.base.message_sizes import DISTRIBUTIONS, mean_bytes, quantile
from netns.topology.model import Topology

MAX_FLOWS: Final = 100_000


@dataclass(frozen=True, slots=True)
class TrafficFlow:
    """One flow of a workload."""

    source: str
    destination: str
    size_bytes: int
    at_s: float = 0.0
    """When it begins."""


class TrafficError(ValueError):
    """A workload does not fit a fabric; the message begins with the key."""


@dataclass(frozen=True, slots=True)
class Bulk:
    """One host sends to one host of another leaf: the first and the last one."""

    size_bytes: int

    def flows(self, topology: Topology, *, capacity_bps: float, seed: int) -> tuple[TrafficFlow, ...]:  # noqa: ARG002
        """Return the flow."""
        destination = topology.hosts[-1]
        return (TrafficFlow(far_from(topology, destination, count=1, key="bulk")[0], destination, self.size_bytes),)


@dataclass(frozen=True, slots=True)
class File:
    """One host sends a file to one host of another leaf, the first to the last one, as `srd send` does."""

    size_bytes: int
    path: str | None = None
    """Where it is; None: random bytes."""

    def flows(self, topology: Topology, *, capacity_bps: float, seed: int) -> tuple[TrafficFlow, ...]:
        """Return the flow."""
        return Bulk(self.size_bytes).flows(topology, capacity_bps=capacity_bps, seed=seed)


@dataclass(frozen=True, slots=True)
class Incast:
    """Several hosts send to the last host at once."""

    senders: int
    size_bytes: int
    """Of each."""

    def flows(self, topology: Topology, *, capacity_bps: float, seed: int) -> tuple[TrafficFlow, ...]:  # noqa: ARG002
        """Return a flow for each sender."""
        destination = topology.hosts[-1]
        sources = far_from(topology, destination, count=self.senders, key="incast.senders")
        return tuple(TrafficFlow(source, destination, self.size_bytes) for source in sources)


@dataclass(frozen=True, slots=True)
class AllToAll:
    """Every host sends to every host of another leaf, at once."""

    size_bytes: int
    """Of each flow."""

    def flows(self, topology: Topology, *, capacity_bps: float, seed: int) -> tuple[TrafficFlow, ...]:  # noqa: ARG002
        """Return a flow for each pair."""
        return tuple(TrafficFlow(source, destination, self.size_bytes) for source, destination in far_pairs(topology))


@dataclass(frozen=True, slots=True)
class Rpc:
    """Messages of a published distribution, between random hosts of different leaves, at random times (Poisson)."""

    sizes: str
    """A key of DISTRIBUTIONS."""

    load: float
    """Share of the capacity of all leaves' uplinks that the messages' bytes need on average, 0 to 1."""

    duration_s: float
    """How long messages begin."""

    scale: float = 1.0
    """Factor of all sizes: on a link of a hundredth of the rate, a message of a hundredth of the size takes as long."""

    def flows(self, topology: Topology, *, capacity_bps: float, seed: int) -> tuple[TrafficFlow, ...]:
        """Return the messages; `capacity_bps` is that of all leaves' uplinks together."""
        distribution = DISTRIBUTIONS[self.sizes]
        draws = random.Random(f"{self.sizes} {seed}")  # noqa: S311 - reproducible traffic, no secret
        pairs = far_pairs(topology)
        per_s = self.load * capacity_bps / (8 * mean_bytes(distribution) * self.scale)
        if per_s * self.duration_s > MAX_FLOWS:
            raise TrafficError(f"rpc.duration: {per_s:.0f} messages a second for {self.duration_s:g} s; shorten it")
        found: list[TrafficFlow] = []
        at_s = draws.expovariate(per_s)
        while at_s < self.duration_s or not found:
            source, destination = draws.choice(pairs)
            size_bytes = max(1, round(self.scale * quantile(distribution, draws.random())))
            found.append(TrafficFlow(source, destination, size_bytes, round(min(at_s, self.duration_s), 6)))
            at_s += draws.expovariate(per_s)
        return tuple(found)


Traffic = Bulk | File | Incast | AllToAll | Rpc


def describe(traffic: Traffic) -> dict[str, Any]:
    """Return its kind and parameters, for digests and reports."""
    parameters = {name: getattr(traffic, name) for name in type(traffic).__dataclass_fields__}
    return {"kind": type(traffic).__name__, **parameters}


def far_from(topology: Topology, host: str, *, count: int, key: str) -> Sequence[str]:
    """Return the first hosts whose leaf is not that of `host`. Raises TrafficError if there are too few."""
    own = topology.switch_of(host)
    found = [each for each in topology.hosts if topology.switch_of(each) != own]
    if len(found) < count:
        raise TrafficError(
            f"{key}: {count} senders, but {topology.name} has {len(found)} hosts on other leaves than {host}; "
            f"give fewer, or a fabric with more hosts_per_leaf"
        )
    return found[:count]


def far_pairs(topology: Topology) -> list[tuple[str, str]]:
    """Return all ordered pairs of hosts of different leaves. Raises TrafficError if there are none."""
    leaf = {host: topology.switch_of(host) for host in topology.hosts}
    found = [(one, other) for one in leaf for other in leaf if leaf[one] != leaf[other]]
    if not found:
        raise TrafficError(f"fabric: all hosts of {topology.name} are on one leaf; give two leaves")
    return found
