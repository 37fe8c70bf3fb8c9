"""One experiment: a topology, flows, a plan of failures, a transport and a seed; and what came of it.

The seed is that of the fabric (ECMP's hashes, draws of losses), of the cores, and of what a workload draws. Connections
are open before the flows and the plan begin; time 0 of a result is that moment.

Links are looked at every `STEP_US` at first; when there are `MAX_STEPS`, every other one is forgotten and the step
doubles. So the series of a run has at most that many steps, however long it takes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from netns.backends.virtual.fabric import VirtualFabric
from netns.faults.schedule import ScheduledEvent, read_schedule
from netns.topology.model import Topology
from srd.proto.base.errors import UsageError
from srd.proto.config import ProtocolConfig
from srd.proto.wire.status import Status
from srd.sim.experiments.errors import ExperimentError
from srd.sim.experiments.fabric import Bounds, host_bps, settings
from srd.sim.experiments.htsim import read_matrix
from srd.sim.experiments.workload import made
from srd.sim.flows import Flow, Running
from srd.sim.simulation import NS_PER_S, Simulation
from srd.sim.transports import TRANSPORTS

STEP_US: Final = 1.0
MAX_STEPS: Final = 256


@dataclass(frozen=True, slots=True)
class Experiment:
    """What is simulated: all of it is here, so that another machine needs nothing else."""

    topology: Topology
    flows: tuple[Flow, ...]
    transport: str = "srd"
    plan: tuple[ScheduledEvent, ...] = ()
    controller: str | None = None
    """MODULE:CLASS of SRD's congestion controller; None: the default."""
    paths: int | None = None
    """Source ports of SRD; None: the settings' own number."""
    seed: int = 1
    limit_s: float = 1.0
    """Virtual time after which flows are given up."""

    def digest(self) -> str:
        """Return a hash of all that decides the result."""
        fields = (self.transport, self.controller, self.paths, self.seed, self.limit_s)
        parts = [*fields, asdict(self.topology), *map(asdict, self.flows), *map(asdict, self.plan)]
        return hashlib.sha256(json.dumps(parts, default=str).encode()).hexdigest()[:16]

    def config(self) -> tuple[str, ProtocolConfig]:
        """Return the name of the protocol settings, and these with what the experiment changes. ExperimentError."""
        name, config = settings(self.topology)
        peers = max(config.max_peers, len(self.topology.hosts))
        controller = None if self.controller is None else _class_named(self.controller)
        try:
            changed = replace(config, max_peers=peers, controller=controller, paths=self.paths or config.paths)
        except UsageError as error:
            raise ExperimentError(str(error)) from None
        return name, changed


def experiment_of(
    topology: Topology,
    *,
    workload: str,
    plan: Path | None = None,
    transport: str = "srd",
    controller: str | None = None,
    paths: int | None = None,
    seed: int = 1,
    limit_s: float = 1.0,
) -> Experiment:
    """Return what a command line or a cell of a grid names: files are read here, and nowhere later.

    The topology is one of `read_fabric`; a workload is a notation or a file of htsim's.
    Raises LabError or ExperimentError, with what is wrong in one line.
    """
    if workload.endswith(".cm"):
        flows = read_matrix(Path(workload), hosts=topology.hosts)
    else:
        flows = made(workload, hosts=topology.hosts, host_bps=host_bps(topology), seed=seed)
    experiment = Experiment(
        topology=topology,
        flows=flows,
        transport=transport,
        plan=() if plan is None else read_schedule(plan, topology),
        controller=controller,
        paths=paths,
        seed=seed,
        limit_s=limit_s,
    )
    experiment.config()  # whose mistakes are the user's, and come before anything is simulated
    return experiment


def _class_named(text: str) -> Any:
    module, _, name = text.partition(":")
    try:
        found = getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ExperimentError(f"--controller {text}: {error}; give module:Class") from None
    if not isinstance(found, type):
        raise ExperimentError(f"--controller {text}: is no class; give module:Class")
    return found


@dataclass(frozen=True, slots=True)
class FlowCompletion:
    """What came of a flow."""

    flow: int
    start_us: float | None
    """None: it waited for flows that were never complete."""
    fct_us: float | None
    """Flow completion time; None: not within the limit."""
    ideal_us: float

    @property
    def slowdown(self) -> float | None:
        """The completion time over the ideal one."""
        return None if self.fct_us is None else self.fct_us / self.ideal_us


@dataclass(frozen=True, slots=True)
class LinkSeries:
    """What left a link, and how long a packet would have waited at it, in steps of `step_us`."""

    sent_bytes: tuple[int, ...]
    wait_ns: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ExperimentResult:
    """What came of an experiment."""

    completions: tuple[FlowCompletion, ...]
    counters: Mapping[str, Mapping[str, int]]
    """Of each virtual link (FROM>TO): packets, bytes, and how many were dropped, marked and the like."""
    series: Mapping[str, LinkSeries]
    """Of each virtual link that sent something."""
    step_us: float
    lasted_us: float
    """Virtual time until the last flow was complete, or the limit."""
    packet_hops: int
    sent: Mapping[str, int]
    """The transport's own counters."""
    settings: str
    failures: tuple[str, ...]
    """Requests and peers of SRD that ended in error."""


def run(experiment: Experiment) -> ExperimentResult:
    """Simulate an experiment. Raises ExperimentError, or SimulationError if connections do not open."""
    transport = TRANSPORTS.get(experiment.transport)
    if transport is None:
        raise ExperimentError(f"--transport {experiment.transport}: there is none; use {', '.join(TRANSPORTS)}")
    name, config = experiment.config()
    topology = replace(experiment.topology, seed=experiment.seed)
    simulation = transport.simulation(topology, config=config, seed=experiment.seed)
    transport.prepare(simulation, [(flow.source, flow.destination) for flow in experiment.flows])
    hops = simulation.fabric.packet_hops
    running = Running(simulation, transport, experiment.flows)
    series = _Series(simulation.fabric)
    simulation.fabric.run_schedule(experiment.plan)
    running.start()
    simulation.run(seconds=experiment.limit_s, done=running.is_done)
    return ExperimentResult(
        completions=_completions(running, topology),
        counters=simulation.fabric.counters(),
        series=series.found(),
        step_us=series.step_ns / 1000,
        lasted_us=(simulation.now_ns - running.began_ns) / 1000,
        packet_hops=simulation.fabric.packet_hops - hops,
        sent=transport.counters(simulation),
        settings=name,
        failures=tuple(_failures(simulation)),
    )


def _failures(simulation: Simulation) -> list[str]:
    found = []
    for host in simulation.sim_hosts.values():
        bad = [status for _, status in host.completions.values() if status is not Status.OK]
        found += [f"{host.host}: {len(bad)} requests failed, the first with {bad[0].name}"] if bad else []
        found += [f"{host.host}: peer {ended.peer} ended: {ended.reason}" for ended in host.ended]
    return found


def _completions(running: Running, topology: Topology) -> tuple[FlowCompletion, ...]:
    """Return what came of each flow; times are whole nanoseconds."""
    bounds, found = Bounds(topology), []
    for index, (flow, started_s, ended_s) in enumerate(running.times_s()):
        ideal_us = bounds.ideal_us(flow.source, flow.destination, size_bytes=flow.size_bytes)
        started_ns = None if started_s is None else round(started_s * NS_PER_S)
        start_us = None if started_ns is None else (started_ns - running.began_ns) / 1000
        fct_us = None if started_ns is None or ended_s is None else (round(ended_s * NS_PER_S) - started_ns) / 1000
        found.append(FlowCompletion(index, start_us, fct_us, ideal_us))
    return tuple(found)


class _Series:
    """Looks at all links of a fabric again and again."""

    def __init__(self, fabric: VirtualFabric) -> None:
        self.step_ns = round(STEP_US * 1000)
        self._fabric = fabric
        self._links = list(fabric.links.values())
        self._before = [link.bytes for link in self._links]
        self._samples: list[tuple[list[int], list[int]]] = []
        fabric.at(fabric.now_ns + self.step_ns, self._look)

    def _look(self, now_ns: int) -> None:
        self._samples.append(([link.bytes for link in self._links], [link.wait_ns for link in self._links]))
        if len(self._samples) == MAX_STEPS:
            self._samples = self._samples[1::2]
            self.step_ns *= 2
        self._fabric.at(now_ns + self.step_ns, self._look)

    def found(self) -> dict[str, LinkSeries]:
        """Return the series of the links that sent something."""
        found = {}
        for index, link in enumerate(self._links):
            totals = [self._before[index], *(sent[index] for sent, _ in self._samples)]
            sent_bytes = tuple(after - before for before, after in pairwise(totals))
            if any(sent_bytes):
                found[link.name] = LinkSeries(sent_bytes, tuple(waits[index] for _, waits in self._samples))
        return found
