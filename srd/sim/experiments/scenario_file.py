"""The keys of a scenario's file (scenario.py says what they mean), and which of them go together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, Field

from netns.base.units import UnitError, parse_duration_us, parse_rate_bps, parse_size
from netns.base.yaml_file import Strict, validated
from netns.faults.schedule import ScheduledEvent, check_events, in_order, parse_events, read_schedule
from netns.topology.model import Topology
from srd.proto.base.errors import UsageError
from srd.proto.config import ProtocolConfig
from srd.sim.experiments.errors import ExperimentError
from srd.sim.experiments.fabric import settings
from srd.sim.experiments.workload import check_size
from srd.sim.host import EPOCH_S
from srd.sim.models.controllers import CONTROLLERS

MERGED: Final = ("links", "settings", "stream")
"""Of these a run changes keys; any other one it has instead of the file's."""
MOST_BACK_S: Final = EPOCH_S / 2
"""How far a clock may go back: before 0 there is no time for the protocol, and clocks begin at EPOCH_S."""


def _parsed(parse: Callable[[Any], float]) -> BeforeValidator:
    def validate(value: object) -> float:
        try:
            return parse(value)
        except (ExperimentError, UnitError) as error:
            raise ValueError(error) from None

    return BeforeValidator(validate)


def _time_s(value: Any) -> float:
    if (found := parse_duration_us(value) / 1e6) < 0:
        raise UnitError(f"{value} is before now; give a time from 0s on")
    return found


Seconds = Annotated[float, _parsed(_time_s)]
SignedSeconds = Annotated[float, _parsed(lambda value: parse_duration_us(value) / 1e6)]
BitsPerSecond = Annotated[float, _parsed(parse_rate_bps)]
FlowBytes = Annotated[int, _parsed(lambda value: check_size(parse_size(value)))]


class StreamKeys(Strict):
    """`stream`."""

    source: str | list[str]
    destination: str | list[str]
    message: FlowBytes
    outstanding: int = Field(default=0, ge=1)
    every: Seconds = 0.0
    messages: int = Field(default=0, ge=1)
    later: Seconds = 0.0

    @property
    def ends(self) -> list[tuple[str, str]]:
        """The two hosts of each stream. Raises ExperimentError."""
        sources = [self.source] if isinstance(self.source, str) else self.source
        given = self.destination
        destinations = [given] * len(sources) if isinstance(given, str) else given
        if not sources or len(sources) != len(destinations) or len({*sources}) < len(sources):
            raise ExperimentError("stream: give sources, none twice, and one destination or as many")
        return list(zip(sources, destinations, strict=True))


class SampleKeys(Strict):
    """`samples`."""

    every: Seconds = Field(gt=0)
    links: str


class BesideKeys(Strict):
    """`beside`."""

    source: str
    destination: str
    tcp: str
    at: Seconds = 0.0


class ClockKeys(Strict):
    """One of `clocks`."""

    offset: SignedSeconds = 0.0
    drift_ppm: float = 0.0
    steps: list[SignedSeconds] = Field(default_factory=list)


class RunKeys(Strict):
    """What a run has."""

    topology: str | dict[str, Any]
    links: dict[str, dict[str, Any]] = Field(default_factory=dict)
    workload: str | None = None
    limit: Seconds = 1.0
    stream: StreamKeys | None = None
    plan: str | list[dict[str, Any]] | None = None
    beside: BesideKeys | None = None
    clocks: dict[str, ClockKeys] = Field(default_factory=dict)
    warm_up: Seconds = 0.0
    time: Seconds | None = Field(default=None, gt=0)
    capacity: BitsPerSecond | None = None
    samples: SampleKeys | None = None
    settings: dict[str, Any] = Field(default_factory=dict)


OF_STREAMS: Final = {"beside", "capacity", "clocks", "samples", "settings", "time", "warm_up"}
"""Keys that say nothing of a workload."""


class ScenarioKeys(RunKeys):
    """A whole file; what it has outside of `runs` is what all runs have."""

    happens: str
    runs: dict[str, dict[str, Any]] | None = Field(default=None, min_length=1)
    figures: dict[str, str] = Field(default_factory=dict)
    bounds: list[str]


def run_keys(document: dict[Any, Any], changes: dict[str, Any]) -> RunKeys:
    """Return what a run has: what the file has for all, with its changes. Raises ExperimentError."""
    all_have = {key: value for key, value in document.items() if key in RunKeys.model_fields}
    merged = {
        key: given | changes[key]
        for key in MERGED
        if isinstance(given := all_have.get(key), dict) and isinstance(changes.get(key), dict)
    }
    return validated(RunKeys, all_have | changes | merged, error=ExperimentError)


def check(keys: RunKeys, topology: Topology, *, base: Path) -> None:
    """Raise ExperimentError or LabError for keys that do not go together."""
    failures_of(keys.plan, topology, base=base)
    config_of(topology, keys)
    if (keys.workload is None) == (keys.stream is None):
        raise ExperimentError("workload, stream: give one of the two")
    if keys.stream is not None:
        _check_stream(keys.stream, keys, topology)
        _check_beside(keys, topology)
        for host, clock in keys.clocks.items():
            _check_host(host, topology, at="clocks")
            if (least_s := min(accumulate(clock.steps, initial=clock.offset))) < -MOST_BACK_S:
                raise ExperimentError(f"clocks.{host}: goes back to {-least_s:g} s before; at most {MOST_BACK_S:g} s")
    elif keys.model_fields_set & OF_STREAMS:
        raise ExperimentError(f"{', '.join(sorted(OF_STREAMS))} are of a stream; leave them out")


def _check_stream(stream: StreamKeys, keys: RunKeys, topology: Topology) -> None:
    if bool(stream.outstanding) == bool(stream.every):
        raise ExperimentError("stream.outstanding, stream.every: give one of the two")
    if bool(stream.messages) == bool(keys.time) or (stream.messages and stream.every):
        raise ExperimentError("time, stream.messages: give one of the two; messages is for outstanding ones")
    if stream.later > keys.warm_up:
        raise ExperimentError(f"stream.later: {stream.later:g} s is after the warm-up; give no more than that")
    sources, destinations = {source for source, _ in stream.ends}, {destination for _, destination in stream.ends}
    for end in sorted(sources | destinations):
        _check_host(end, topology, at="stream")
    if both := sources & destinations:
        raise ExperimentError(f"stream: {min(both)} is a source and a destination; take two hosts")


def _check_beside(keys: RunKeys, topology: Topology) -> None:
    beside = keys.beside
    if beside is None or keys.stream is None:
        return
    if not keys.time:
        raise ExperimentError("beside: is measured for a time; give time, and no stream.messages")
    if beside.tcp not in CONTROLLERS:
        raise ExperimentError(f"beside.tcp: there is no {beside.tcp}; use {', '.join(CONTROLLERS)}")
    for host in (beside.source, beside.destination):
        _check_host(host, topology, at="beside")
        if any(host in ends for ends in keys.stream.ends):
            raise ExperimentError(f"beside: {host} has a stream; take two hosts without")
    if beside.source == beside.destination:
        raise ExperimentError(f"beside: {beside.source} is source and destination; take two hosts")


def _check_host(name: str, topology: Topology, *, at: str) -> None:
    if name not in topology.hosts:
        raise ExperimentError(f"{at}: {name} is no host; there are {', '.join(topology.hosts)}")


def failures_of(
    plan: str | list[dict[str, Any]] | None, topology: Topology, *, base: Path
) -> tuple[ScheduledEvent, ...]:
    """Return the events of a plan, which is a file or a list. Raises LabError."""
    if isinstance(plan, str):
        return read_schedule(base / plan, topology)
    events = parse_events({"events": plan or []}, base=base)
    check_events(events, topology)
    return in_order(events)


def config_of(topology: Topology, keys: RunKeys) -> ProtocolConfig:
    """Return the settings for a topology with a run's changes. Raises ExperimentError."""
    _, config = settings(topology)
    try:
        return replace(config, **keys.settings)
    except (TypeError, UsageError) as error:
        raise ExperimentError(f"settings: {error}") from None
