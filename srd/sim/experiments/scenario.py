"""Scenarios: YAML files that say what is simulated, and the bounds that its figures must meet.

    happens: one of 8 paths at a tenth of the rate      # one line, for lists
    topology: {leaf_spine: {spines: 8, ...}}            # as in a topology file (docs/fabric.md), or the name of one
    stream: {source: h1, destination: h2, message: 1MiB, outstanding: 24}
    warm_up: 500ms                                      # virtual time before the measurement
    time: 1s                                            # and of it
    capacity: 1775mbit                                  # of all paths; headers included
    bounds: [capacity_fraction >= 0.95]

`stream` keeps so many messages outstanding; with `every: 10ms` instead it posts one so often, and what was posted must
be delivered within `limit` (1s). Lists of hosts as `source` and `destination` are as many streams, to one destination
or to one each; with `later: 2ms` every other one begins so much later, in the warm-up. Figures: `goodput_mbps` of the
payload that landed while it was measured; with a `capacity`, `capacity_mbps` for payload, and `capacity_fraction`: the
one over the other; `lost_fraction` (declared lost) and `resent_fraction` of what was sent, `marked_packets`; since the
start, `retransmitted_fraction` of what was sent, and `spurious_fraction` of what arrived, which had arrived before. Of
several streams `jain_index`: how evenly they shared. With `samples: {every: 2ms, links: "leaf1>*"}` `mean_queue_ms` and
`median_queue_ms`, how long a packet would have waited at these links, and `median_queue_bdp`, over the round trip of
the empty fabric. `settings` are those of srd/proto/config.py which are not the defaults.

A stream of so many `messages` needs no `time`. Its figures are the `median_over_ideal_ratio` and the
`max_over_ideal_ratio` of their times, from posting to delivery; ideal is what the packets of a message take, with all
headers, at the narrowest rate, and the last one across the empty fabric (`ideal_us`: of the first stream). Goodput and
capacity are as above, from the first message posted to the last one delivered.

What else may happen to streams:

    plan: [{at: 500ms, fail: spine1, for: 500ms}]       # failures, as of `srd sim --plan`, or the name of a file
    beside: {source: h3, destination: h4, tcp: cubic, at: 1s}    # an endless flow of TCP: cubic, bbr or dctcp
    clocks: {h2: {offset: 1h, drift_ppm: 100, steps: [1s, -1s]}} # wrong ones

A plan begins with the first stream. Its figures: `failed_requests`, which without a plan are an error;
`longest_gap_ms` between two deliveries of messages while it was measured, and `longest_packet_gap_ms` without payload;
`messages` delivered; `repaired_s`, the longest time from a repair until the link that had carried most there has
carried ten full packets again. Beside TCP there are `beside_mbps` of TCP on the wire, and `beside_lost_fraction` of
what it sent. A clock is set by each of the `steps` after equal parts of the measurement.

Instead of `stream`, and all above but topology and plan:

    workload: incast:48x2MB                             # as of `srd sim`
    limit: 1s                                           # virtual time within which it must be complete

Its figures are those of `srd sim`. If all flows have one destination, there are also `senders_done`; `max_us` and
`min_us`, the slowest's and fastest's time; `spread_ratio`, the one over the other; `ideal_us`: what a port that never
idles takes for all messages with their headers, after the first packet has crossed the empty fabric (no transport can
deliver the last message earlier); `max_over_ideal_ratio`; `resent_fraction` of what was sent; `overlimit_fraction`:
what found no room at the destination's port, over what was sent.

`runs` are variants of one scenario, played one after the other. A run changes links, by patterns of their names
(A-B, or one direction: A>B), keys of the stream, and settings; any other key but `workload` and `limit` it may have
instead of the file's:

    runs:
      1pct: {links: {"leaf2-*": {loss: 1%}}, capacity: 990mbit}
      alone: {stream: {source: h1}, settings: {paths: 1}}
    figures: {queue_ratio: mean_queue_ms / mean_queue_ms_unmarked}

A run's figures end in its name, but for those of the run `main`. `figures` are made of others (expression.py). A bound
of a figure that only runs with other names have is one of the worst of them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

from netns.base.files import file_or_example
from netns.base.yaml_file import load_mapping, validated
from netns.errors import LabError
from netns.netem.shape import Shape
from netns.topology.file import parse_topology
from netns.topology.model import Topology
from srd.sim.experiments.errors import ExperimentError
from srd.sim.experiments.experiment import Experiment, experiment_of, run
from srd.sim.experiments.expression import Expression
from srd.sim.experiments.fabric import read_fabric, with_host_ports
from srd.sim.experiments.figures import figures as figures_of
from srd.sim.experiments.figures import incast_figures
from srd.sim.experiments.requirement import Requirement, requirement
from srd.sim.experiments.scenario_file import RunKeys, ScenarioKeys, check, config_of, failures_of, run_keys
from srd.sim.experiments.streams import play

SCENARIOS: Final = Path(__file__).parent / "scenarios"
NAMES: Final = tuple(sorted(path.stem for path in SCENARIOS.glob("*.yaml")))
"""The built-in ones."""
MAIN: Final = "main"
Figures = dict[str, float]


@dataclass(frozen=True, slots=True)
class Scenario:
    """A scenario."""

    name: str
    happens: str
    bounds: tuple[Requirement, ...]
    seconds: float
    """Virtual time that all runs measure; 0: it depends on the run, or on when the workload is complete."""
    _runs: dict[str, RunKeys]
    _made: dict[str, Expression]
    """Figures that are made of others."""
    _base: Path

    def figures(self, *, seed: int, seconds: float | None = None) -> Figures:
        """Play all runs. `seconds`: measure for so long. Raises LabError, or SimulationError if one is not valid."""
        found: Figures = {}
        for name, topology in self.topologies(seed=seed).items():
            played = self._play(topology, self._runs[name], seed=seed, measured_s=seconds)
            found |= {key if name == MAIN else f"{key}_{name}": value for key, value in played.items()}
        for name, expression in self._made.items():
            if name in found:
                raise ExperimentError(f"figures.{name}: there is such a figure; take another name")
            try:
                found[name] = expression.value(found)
            except ExperimentError as error:
                raise ExperimentError(f"figures.{name}: {error}") from None
        for each in self.bounds:
            runs = [found[name] for run in self._runs if (name := f"{each.figure}_{run}") in found]
            if each.figure not in found and runs:
                found[each.figure] = each.worst(runs)
        return found

    def checks(self, found: Figures) -> list[tuple[Requirement, bool]]:
        """Return the bounds, and whether figures meet them. Raises ExperimentError if there is no such figure."""
        for each in self.bounds:
            if each.figure not in found:
                raise ExperimentError(f"bounds: {each.figure} is no figure; there are {', '.join(found)}")
        return [(each, each.met(found[each.figure])) for each in self.bounds]

    def topologies(self, *, seed: int) -> dict[str, Topology]:
        """Return the topology of each run, by the run's name. Raises ExperimentError or LabError."""
        return {name: self._topology(keys, seed=seed) for name, keys in self._runs.items()}

    def _topology(self, keys: RunKeys, *, seed: int) -> Topology:
        """Return a run's topology, with its changes of links. Raises ExperimentError or LabError."""
        given = keys.topology
        if isinstance(given, str):
            beside = self._base / given
            made = read_fabric(str(beside) if beside.exists() else given)
        else:
            made = with_host_ports(parse_topology(given, default_name=self.name, base=self._base))
        links = list(made.links)
        for pattern, fields in keys.links.items():
            both = {i for i, link in enumerate(links) if fnmatchcase(link.name, pattern)}
            ab = {i for i, link in enumerate(links) if fnmatchcase(f"{link.a}>{link.b}", pattern)} | both
            ba = {i for i, link in enumerate(links) if fnmatchcase(f"{link.b}>{link.a}", pattern)} | both
            for i in ab:
                links[i] = replace(links[i], shape_ab=self._changed(links[i].shape_ab, fields))
            for i in ba:
                links[i] = replace(links[i], shape_ba=self._changed(links[i].shape_ba, fields))
            if not ab | ba:
                raise ExperimentError(f"links: {pattern}: no link has such a name; one is {links[0].name}")
        return replace(made, links=tuple(links), seed=seed)

    def _changed(self, shape: Shape | None, fields: dict[str, Any]) -> Shape:
        return (shape or Shape()).changed(fields, base=self._base)

    def _play(self, topology: Topology, keys: RunKeys, *, seed: int, measured_s: float | None) -> Figures:
        failures = failures_of(keys.plan, topology, base=self._base)
        if keys.workload is not None:
            experiment = experiment_of(topology, workload=keys.workload, seed=seed, limit_s=keys.limit)
            return _complete(replace(experiment, plan=failures))
        if measured_s and keys.time:
            keys = keys.model_copy(update={"time": measured_s})
        return play(topology, keys, failures, config=config_of(topology, keys), seed=seed)


def read_scenario(name: str | Path) -> Scenario:
    """Return the scenario in a file, or a built-in one. Raises ExperimentError with file, key and value."""
    path = file_or_example(name, examples=SCENARIOS)
    try:
        document = load_mapping(path, error=ExperimentError, wanted="holds no scenario; give topology, and bounds")
        return _scenario(document, path)
    except (ExperimentError, LabError) as error:
        raise ExperimentError(f"{path}: {error}") from None


def is_scenario(name: str) -> bool:
    """Whether that is a scenario's file, or a built-in one's name; a topology's file has no topology within."""
    path = file_or_example(name, examples=SCENARIOS)
    if path.parent == SCENARIOS:
        return True
    try:
        return path.suffix == ".yaml" and "topology" in load_mapping(path, error=ExperimentError, wanted="")
    except ExperimentError:
        return False  # who reads it as a topology says what is wrong


def _scenario(document: dict[Any, Any], path: Path) -> Scenario:
    keys, made = validated(ScenarioKeys, document, error=ExperimentError), {}
    runs = {name: run_keys(document, changes) for name, changes in (keys.runs or {MAIN: {}}).items()}
    for name, text in keys.figures.items():
        try:
            made[name] = Expression(text)
        except ExperimentError as error:
            raise ExperimentError(f"figures.{name}: {error}") from None
    bounds = tuple(map(requirement, keys.bounds))
    scenario = Scenario(path.stem, keys.happens, bounds, keys.time or 0.0, runs, made, path.parent)
    for name, topology in scenario.topologies(seed=1).items():
        check(runs[name], topology, base=path.parent)
    return scenario


def _complete(experiment: Experiment) -> Figures:
    """Return the figures of an experiment all of whose flows must be complete. Raises ExperimentError."""
    result = run(experiment)
    if result.failures:
        raise ExperimentError(result.failures[0])
    found = figures_of(experiment, result)
    if found["flows_complete"] < found["flows"]:
        complete = f"{found['flows_complete']} of {found['flows']} flows were complete"
        raise ExperimentError(f"{complete} in {experiment.limit_s:g} s")
    sinks = {flow.destination for flow in experiment.flows}
    return found | (incast_figures(experiment, result, sink=sinks.pop()) if len(sinks) == 1 else {})
