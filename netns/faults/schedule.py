"""Fault schedules: failures and changes of a fabric with their times, from YAML, for labs and the virtual backend.

    events:
      - {at: 5s, fail: spine1, for: 2s}                       # a node or a link; without `for` it stays down
      - {at: 8s, set: leaf1-spine2, shape: {delay: 20ms}}     # as `srd-lab set`: other properties stay
      - {at: 9s, set: leaf1-spine2, direction: ab, shape: {loss: 5%}, for: 1s}
      - {at: 12s, repair: spine1}
      - {at: 14s, fail: leaf1-spine3, carrier: true, for: 1s}   # with loss of carrier: routers use other next hops

Times are from the start of the schedule. An event with a `for` is undone after it, and only that event: overlapping
changes of a link are taken back one by one (netns/netem/changes.py). Every mistake is one line with file, key and
value: TopologyError, or ShapeError for a shape.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import Field

from netns.base.naming import named
from netns.base.units import UnitError, parse_duration_us
from netns.base.yaml_file import Strict, load_mapping, validated
from netns.errors import ShapeError, TopologyError
from netns.netem.shape import Shape
from netns.topology.model import Topology

Action = Literal["fail", "repair", "set"]
MAX_SCHEDULE_S: Final = 30 * 86400
"""Longer than any lab exists, and within the range of the system's clocks and timers."""

ACTIONS: Final = ("fail", "set", "repair")


@dataclass(frozen=True, slots=True)
class ScheduledEvent:
    """One event at one link or node."""

    at_us: float
    """The time from the start of the schedule."""

    action: Action
    name: str
    """The link or node."""

    for_us: float | None = None
    """The duration; None: no end."""

    shape: Mapping[str, Any] | None = None
    """For `set`: the changes, in tc's notation."""

    direction: Literal["both", "ab", "ba"] = "both"
    """For `set`."""

    carrier: bool = False
    """For `fail`: whether both ends lose the carrier; otherwise the failure is silent."""

    base: Path = Path()
    """The directory for relative file names in `shape`."""

    def __str__(self) -> str:
        shape = "" if self.shape is None else " " + " ".join(f"{key}={value}" for key, value in self.shape.items())
        until = "" if self.for_us is None else f" for {self.for_us / 1e6:g} s"
        carrier = " with its carrier" if self.carrier else ""
        return f"{self.action} {self.name}{carrier}{shape}{until}"


class _Event(Strict):
    at: str | int | float = 0
    fail: str | None = None
    set_: str | None = Field(default=None, alias="set")
    repair: str | None = None
    for_: str | int | float | None = Field(default=None, alias="for")
    shape: dict[str, Any] | None = None
    direction: Literal["both", "ab", "ba"] = "both"
    carrier: bool = False


class _File(Strict):
    events: list[_Event]


def read_schedule(path: Path, topology: Topology) -> tuple[ScheduledEvent, ...]:
    """Return the events in a YAML file, ordered by time, checked against the topology."""
    with named(f"{path}: ", TopologyError, ShapeError):
        document = load_mapping(path, error=TopologyError, wanted="contains no schedule; give events")
        events = parse_events(document, base=path.parent)
        check_events(events, topology)
    return in_order(events)


def parse_events(document: Mapping[Hashable, Any], *, base: Path) -> tuple[ScheduledEvent, ...]:
    """Return the events under the key `events`, in the order given. Raises TopologyError."""
    listed = validated(_File, document, error=TopologyError).events
    return tuple(_event(each, at=f"events[{index}]", base=base) for index, each in enumerate(listed))


def check_events(events: Sequence[ScheduledEvent], topology: Topology) -> None:
    """Raise TopologyError or ShapeError for the first event that the topology cannot have."""
    for index, event in enumerate(events):
        _check(event, topology, at=f"events[{index}]")


def in_order(events: Iterable[ScheduledEvent]) -> tuple[ScheduledEvent, ...]:
    """Return events by time."""
    return tuple(sorted(events, key=lambda event: event.at_us))


def _event(given: _Event, *, at: str, base: Path) -> ScheduledEvent:
    actions: dict[Action, str | None] = {"fail": given.fail, "set": given.set_, "repair": given.repair}
    named = [(action, name) for action, name in actions.items() if name is not None]
    if len(named) != 1:
        raise TopologyError(f"{at}: has {len(named) or 'none'} of {', '.join(ACTIONS)}; give one")
    ((action, name),) = named
    if (given.shape is None) == (action == "set"):
        raise TopologyError(f"{at}.shape: belongs to set, and set needs one")
    if action == "repair" and given.for_ is not None:
        raise TopologyError(f"{at}.for: a repair is for good; leave it out")
    if given.carrier and action != "fail":
        raise TopologyError(f"{at}.carrier: belongs to fail; leave it out")
    return ScheduledEvent(
        at_us=_time(given.at, at=f"{at}.at"),
        action=action,
        name=name,
        for_us=None if given.for_ is None else _time(given.for_, at=f"{at}.for"),
        shape=given.shape,
        direction=given.direction,
        carrier=given.carrier,
        base=base,
    )


def _time(value: str | float, *, at: str) -> float:
    with named(f"{at}: ", UnitError, error=TopologyError):
        time_us = parse_duration_us(value)
    if time_us < 0:
        raise TopologyError(f"{at}: {value} is before the start of the schedule")
    if time_us > MAX_SCHEDULE_S * 1e6:
        raise TopologyError(f"{at}: {value} is too long; at most {MAX_SCHEDULE_S} s")
    return time_us


def _check(event: ScheduledEvent, topology: Topology, *, at: str) -> None:
    if event.action == "set":
        try:
            link = topology.link(event.name)
            for shape in (link.shape_ab, link.shape_ba):
                (shape or Shape()).changed(event.shape or {}, base=event.base)
        except (TopologyError, ShapeError) as error:
            raise type(error)(f"{at}.{'set' if isinstance(error, TopologyError) else 'shape'}: {error}") from None
        return
    with named(f"{at}.{event.action}: ", TopologyError):
        topology.links_at(event.name)
