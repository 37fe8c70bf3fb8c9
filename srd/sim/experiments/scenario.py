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
one over the other; `lost_fraction` (declared lost) and `marked_packets`; since the start, `retransmitted_fraction` of
what was sent, and `spurious_fraction` of what arrived, which had arrived before. Of several streams `jain_index`: how
evenly they shared. With `samples: {every: 2ms, links: "leaf1>*"}` `mean_queue_ms`, how long a packet would have waited
at these links, and `median_queue_bdp`: the median, over the round trip of the empty fabric. `settings` are those of
srd/proto/config.py which are not the defaults.

A stream of so many `messages` needs no `time`. Its figures are the `median_over_ideal_ratio` and the
`max_over_ideal_ratio` of their times, from posting to delivery; ideal is what the packets of a message take, with all
headers, at the narrowest rate, and the last one across the empty fabric (`ideal_us`: of the first stream).

Instead of `stream`, `time` and `capacity`:

    workload: incast:48x2MB                             # as of `srd sim`
    limit: 1s                                           # virtual time within which it must be complete

Its figures are those of `srd sim`. If all flows have one destination, there are also `senders_done`; `max_us` and
`min_us`, the slowest's and fastest's time; `spread_ratio`, the one over the other; `ideal_us`: what a port that never
idles takes for all messages with their headers, after the first packet has crossed the empty fabric (no transport can
deliver the last message earlier); `max_over_ideal_ratio`; `resent_fraction` of what was sent; `overlimit_fraction`:
what found no room at the destination's port, over what was sent.

`runs` are variants of one scenario, played one after the other. A run changes links, by patterns of their names
(A-B, or one direction: A>B), settings, and keys of the stream, and may have another capacity:

    runs:
      1pct: {links: {"leaf2-*": {loss: 1%}}, capacity: 990mbit}
      alone: {stream: {source: h1}, settings: {paths: 1}}
    ratios: {queue_ratio: mean_queue_ms / mean_queue_ms_unmarked}

A run's figures end in its name, but for those of the run `main`. Ratios are of figures. A bound of a figure that only
runs with other names have is one of the worst of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

from pydantic import Field

from netns.base.files import file_or_example
from netns.base.units import UnitError, parse_duration_us, parse_rate_bps, parse_size
from netns.base.yaml_file import Strict, load_mapping, validated
from netns.errors import LabError
from netns.netem.shape import Shape
from netns.topology.file import parse_topology
from netns.topology.model import Topology
from srd.proto.base.errors import UsageError
from srd.proto.config import ProtocolConfig
from srd.sim.experiments.errors import ExperimentError
from srd.sim.experiments.experiment import Experiment, ExperimentResult, run
from srd.sim.experiments.fabric import Bounds, message_bytes, packet_bytes, read_fabric, settings, with_host_ports
from srd.sim.experiments.figures import figures as figures_of
from srd.sim.experiments.inputs import experiment_of
from srd.sim.experiments.requirement import Requirement, requirement
from srd.sim.experiments.streams import StreamPlan, play
from srd.sim.experiments.workload import check_size

SCENARIOS: Final = Path(__file__).parent / "scenarios"
NAMES: Final = tuple(sorted(path.stem for path in SCENARIOS.glob("*.yaml")))
"""The built-in ones."""
MAIN: Final = "main"
Figures = dict[str, float]


class _Stream(Strict):
    source: str | list[str]
    destination: str | list[str]
    message: str | int
    outstanding: int = Field(default=0, ge=1)
    every: str | None = None
    messages: int = Field(default=0, ge=1)
    later: str = "0s"


class _Samples(Strict):
    every: str
    links: str


class _Run(Strict):
    links: dict[str, dict[str, Any]] = Field(default_factory=dict)
    capacity: str | int | None = None
    settings: dict[str, Any] = Field(default_factory=dict)
    stream: dict[str, Any] = Field(default_factory=dict)


class _File(Strict):
    happens: str
    topology: str | dict[str, Any]
    workload: str | None = None
    limit: str = "1s"
    stream: _Stream | None = None
    warm_up: str = "0s"
    time: str | None = None
    capacity: str | int | None = None
    samples: _Samples | None = None
    settings: dict[str, Any] = Field(default_factory=dict)
    runs: dict[str, _Run] = Field(default_factory=lambda: {MAIN: _Run()}, min_length=1)
    ratios: dict[str, str] = Field(default_factory=dict)
    bounds: list[str]


@dataclass(frozen=True, slots=True)
class Scenario:
    """A scenario."""

    name: str
    happens: str
    bounds: tuple[Requirement, ...]
    seconds: float
    """Virtual time that is measured; 0: until the workload is complete."""
    _file: _File
    _base: Path

    def figures(self, *, seed: int, seconds: float | None = None) -> Figures:
        """Play all runs. `seconds`: measure for so long. Raises LabError, or SimulationError if one is not valid."""
        found: Figures = {}
        for name, topology in self.topologies(seed=seed).items():
            played = self._play(topology, self._file.runs[name], seed=seed, seconds=seconds or self.seconds)
            found |= {key if name == MAIN else f"{key}_{name}": value for key, value in played.items()}
        for name, text in self._file.ratios.items():
            over, _, under = text.partition(" / ")
            if lacking := {over, under} - {*found}:
                raise ExperimentError(f"ratios.{name}: {lacking.pop()} is no figure; there are {', '.join(found)}")
            found[name] = found[over] / found[under]
        for each in self.bounds:
            runs = [found[name] for run in self._file.runs if (name := f"{each.figure}_{run}") in found]
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
        made = self._topology(seed)
        return {name: self._changed(made, changes) for name, changes in self._file.runs.items()}

    def _topology(self, seed: int) -> Topology:
        given = self._file.topology
        if isinstance(given, str):
            beside = self._base / given
            made = read_fabric(str(beside) if beside.exists() else given)
        else:
            made = with_host_ports(parse_topology(given, default_name=self.name, base=self._base))
        return replace(made, seed=seed)

    def _changed(self, topology: Topology, changes: _Run) -> Topology:
        """Return the topology with a run's changes of links. Raises ExperimentError or ShapeError."""
        links = list(topology.links)
        for pattern, fields in changes.links.items():
            both = {i for i, link in enumerate(links) if fnmatchcase(link.name, pattern)}
            ab = {i for i, link in enumerate(links) if fnmatchcase(f"{link.a}>{link.b}", pattern)} | both
            ba = {i for i, link in enumerate(links) if fnmatchcase(f"{link.b}>{link.a}", pattern)} | both
            for i in ab:
                links[i] = replace(links[i], shape_ab=(links[i].shape_ab or Shape()).changed(fields, base=self._base))
            for i in ba:
                links[i] = replace(links[i], shape_ba=(links[i].shape_ba or Shape()).changed(fields, base=self._base))
            if not ab | ba:
                raise ExperimentError(f"links: {pattern}: no link has such a name; one is {links[0].name}")
        return replace(topology, links=tuple(links))

    def _play(self, topology: Topology, changes: _Run, *, seed: int, seconds: float) -> Figures:
        if self._file.workload is not None:
            limit_s = _seconds(self._file.limit, at="limit")
            return _workload(topology, self._file.workload, seed=seed, limit_s=limit_s)
        plan = _plan(self._file, changes, topology)
        config = _config(topology, self._file.settings | changes.settings)
        return play(topology, replace(plan, seconds=seconds), config=config, seed=seed)


def read_scenario(name: str | Path) -> Scenario:
    """Return the scenario in a file, or a built-in one. Raises ExperimentError with file, key and value."""
    path = file_or_example(name, examples=SCENARIOS)
    try:
        document = load_mapping(path, error=ExperimentError, wanted="holds no scenario; give topology, and bounds")
        return _scenario(validated(_File, document, error=ExperimentError), path)
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


def _scenario(file: _File, path: Path) -> Scenario:
    if (file.workload is None) == (file.stream is None):
        raise ExperimentError("workload, stream: give one of the two")
    if file.workload is not None and (file.time or file.settings or file.samples or file.capacity):
        raise ExperimentError("time, capacity, samples and settings are of a stream; leave them out")
    for name, text in file.ratios.items():
        if len(text.split(" / ")) != 2:
            raise ExperimentError(f"ratios.{name}: {text!r} is not FIGURE / FIGURE")
    seconds = 0.0 if file.time is None else _seconds(file.time, at="time")
    scenario = Scenario(path.stem, file.happens, tuple(map(requirement, file.bounds)), seconds, file, path.parent)
    for run_name, topology in scenario.topologies(seed=1).items():
        if file.stream is not None:
            _plan(file, file.runs[run_name], topology)
        _config(topology, file.settings | file.runs[run_name].settings)
    return scenario


def _plan(file: _File, changes: _Run, topology: Topology) -> StreamPlan:
    """Return what a run posts and measures. Raises ExperimentError."""
    assert file.stream is not None, "there is a stream, or a workload"  # noqa: S101 - for the type; `_scenario` checks it
    stream = validated(_Stream, file.stream.model_dump(exclude_unset=True) | changes.stream, error=ExperimentError)
    if bool(stream.outstanding) == bool(stream.every):
        raise ExperimentError("stream.outstanding, stream.every: give one of the two")
    if bool(stream.messages) == bool(file.time) or (stream.messages and stream.every):
        raise ExperimentError("time, stream.messages: give one of the two; messages is for outstanding ones")
    if file.time and not _seconds(file.time, at="time"):
        raise ExperimentError("time: 0s is nothing to measure; give more")
    if file.samples is not None and not _seconds(file.samples.every, at="samples.every"):
        raise ExperimentError("samples.every: 0s is no interval; give more")
    capacity = file.capacity if changes.capacity is None else changes.capacity
    warm_up_s, later_s = _seconds(file.warm_up, at="warm_up"), _seconds(stream.later, at="stream.later")
    if later_s > warm_up_s:
        raise ExperimentError(f"stream.later: {stream.later} is after the warm-up; give no more than that")
    return StreamPlan(
        ends=_ends(stream, topology),
        message_bytes=_message_bytes(stream),
        outstanding=stream.outstanding,
        every_s=_seconds(stream.every, at="stream.every") if stream.every else 0.0,
        messages=stream.messages,
        later_s=later_s,
        warm_up_s=warm_up_s,
        seconds=_seconds(file.time, at="time") if file.time else 0.0,
        limit_s=_seconds(file.limit, at="limit"),
        capacity_bps=0.0 if capacity is None else _rate(capacity),
        sample_s=_seconds(file.samples.every, at="samples.every") if file.samples else 0.0,
        sampled=file.samples.links if file.samples else "",
    )


def _ends(stream: _Stream, topology: Topology) -> tuple[tuple[str, str], ...]:
    """Return the two hosts of each stream."""
    sources = [stream.source] if isinstance(stream.source, str) else stream.source
    given = stream.destination
    destinations = [given] * len(sources) if isinstance(given, str) else given
    for end in (*sources, *destinations):
        if end not in topology.hosts:
            raise ExperimentError(f"stream: {end} is no host; there are {', '.join(topology.hosts)}")
    if not sources or len(sources) != len(destinations) or len({*sources}) < len(sources):
        raise ExperimentError("stream: give sources, none twice, and one destination or as many")
    if both := {*sources} & {*destinations}:
        raise ExperimentError(f"stream: {min(both)} is a source and a destination; take two hosts")
    return tuple(zip(sources, destinations, strict=True))


def _workload(topology: Topology, workload: str, *, seed: int, limit_s: float) -> Figures:
    experiment = experiment_of(topology, workload=workload, seed=seed, limit_s=limit_s)
    result = run(experiment)
    if result.failures:
        raise ExperimentError(result.failures[0])
    found = figures_of(experiment, result)
    if found["flows_complete"] < found["flows"]:
        raise ExperimentError(f"{found['flows_complete']} of {found['flows']} flows were complete in {limit_s:g} s")
    sinks = {flow.destination for flow in experiment.flows}
    return found | (incast_figures(experiment, result, sink=sinks.pop()) if len(sinks) == 1 else {})


def incast_figures(experiment: Experiment, result: ExperimentResult, *, sink: str) -> Figures:
    """Return the figures of flows to one host."""
    times_us = [each.fct_us for each in result.completions if each.fct_us is not None]
    port, sent = result.counters[f"{experiment.topology.switch_of(sink)}>{sink}"], result.sent["packets_sent"]
    ideal_us = incast_ideal_us(experiment, sink=sink)
    return {
        "senders_done": len(times_us),
        "max_over_ideal_ratio": max(times_us) / ideal_us,
        "spread_ratio": max(times_us) / min(times_us),
        "ideal_us": ideal_us,
        "max_us": max(times_us),
        "min_us": min(times_us),
        "resent_fraction": result.sent["packets_resent"] / sent,
        "overlimit_fraction": port["overlimit"] / sent,
    }


def incast_ideal_us(experiment: Experiment, *, sink: str) -> float:
    """Return the time of the first packet to the sink's port, plus that of all messages through it."""
    topology, flows = experiment.topology, experiment.flows
    links = topology.links_of[sink][0]
    down = links.shape_ba if links.a == sink else links.shape_ab
    if down is None or not down.rate_bps:
        raise ExperimentError(f"the link to {sink} has no rate, of which the ideal time is made; give it one")
    all_bytes = sum(message_bytes(topology, size_bytes=flow.size_bytes)[0] for flow in flows)
    first_bytes = min(packet_bytes(topology), all_bytes)
    first_us = Bounds(topology).delay_us(flows[0].source, sink, length_bytes=first_bytes)
    return first_us + (all_bytes - first_bytes) * 8e6 / down.rate_bps


def _message_bytes(stream: _Stream) -> int:
    try:
        return check_size(parse_size(str(stream.message)))
    except (ExperimentError, UnitError) as error:
        raise ExperimentError(f"stream.message: {error}") from None


def _config(topology: Topology, changes: Mapping[str, Any]) -> ProtocolConfig:
    _, config = settings(topology)
    try:
        return replace(config, **changes)
    except (TypeError, UsageError) as error:
        raise ExperimentError(f"settings: {error}") from None


def _seconds(text: str, *, at: str) -> float:
    try:
        found = parse_duration_us(text) / 1e6
    except UnitError as error:
        raise ExperimentError(f"{at}: {error}") from None
    if found < 0:
        raise ExperimentError(f"{at}: {text} is before now; give a time from 0s on")
    return found


def _rate(text: str | int) -> float:
    try:
        return parse_rate_bps(str(text))
    except UnitError as error:
        raise ExperimentError(f"capacity: {error}") from None
