"""The flavors that a workload could get, and how: what the search returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from netns.governance.facts import Fact
from netns.governance.model import Admission, Fungibility, PodSet, PodSetAdmission, Quantities, Tried, plus
from netns.placement.model import TopologyAssignment as Domains


class Mode(IntEnum):
    """What is to be done; the worse one is lower."""

    NO_FIT = 0
    PREEMPT = 1
    DEFERRED = 2
    """It fits once the victims of others are gone."""
    FIT = 3

    def __str__(self) -> str:
        return ("NoFit", "Preempt", "DeferredFit", "Fit")[self]


class Way(IntEnum):
    """How a flavor would do; the worse one is lower."""

    NO_FIT = 0
    NO_CANDIDATES = 1
    PREEMPT = 2
    """Some victim is in the own queue."""
    RECLAIM = 3
    """All victims are in other queues."""
    FIT = 4

    @property
    def mode(self) -> Mode:
        """The way as a mode."""
        return Mode.FIT if self == Way.FIT else Mode.NO_FIT if self == Way.NO_FIT else Mode.PREEMPT

    @property
    def possibility(self) -> str | None:
        """What a simulation of preemption found, if there was one."""
        return (None, "NoCandidates", "Preempt", "Reclaim", None)[self]


Grade = tuple[Way, int]
"""A way, and its borrowing level."""


def preferred(a: Grade, b: Grade, fungibility: Fungibility) -> bool:
    """Return whether a flavor of grade `a` is better than one of grade `b`."""
    if Way.NO_FIT in (a[0], b[0]):
        return a[0] != Way.NO_FIT
    if (a[0] == Way.NO_CANDIDATES) != (b[0] == Way.NO_CANDIDATES):
        return a[0] != Way.NO_CANDIDATES
    if fungibility.preference == "PreemptionOverBorrowing":
        return (-a[1], a[0]) > (-b[1], b[0])
    return (a[0], -a[1]) > (b[0], -b[1])


def goes_on(grade: Grade, fungibility: Fungibility) -> bool:
    """Return whether the next flavor is tried, too."""
    way, level = grade
    if way in (Way.NO_FIT, Way.NO_CANDIDATES):
        return True
    if way in (Way.PREEMPT, Way.RECLAIM) and fungibility.when_can_preempt == "TryNextFlavor":
        return True
    return level > 0 and fungibility.when_can_borrow == "TryNextFlavor"


@dataclass(slots=True)
class Chosen:
    """A flavor for one resource."""

    flavor: str
    mode: Mode
    level: int = 0
    tried: int = 0
    """The index of the last flavor looked at; -1: the last of the group."""


@dataclass(slots=True)
class Attempt:
    """A flavor that was looked at."""

    flavor: str
    mode: Mode
    level: int = 0
    possibility: str | None = None
    facts: tuple[Fact, ...] = ()
    reason: str = ""
    """Why it does not do."""


@dataclass(slots=True)
class PodSetAssignment:
    """What a pod set could get."""

    podset: PodSet
    count: int
    requests: dict[str, int]
    flavors: dict[str, Chosen] = field(default_factory=dict)
    facts: list[Fact] = field(default_factory=list)
    attempts: list[Attempt] = field(default_factory=list)
    topology: Domains | None = None

    @property
    def mode(self) -> Mode:
        """The worst of its flavors."""
        if not self.facts:
            return Mode.FIT
        return min((chosen.mode for chosen in self.flavors.values()), default=Mode.NO_FIT)

    def set_mode(self, mode: Mode) -> None:
        """Set that of all its flavors."""
        for chosen in self.flavors.values():
            chosen.mode = mode


@dataclass(slots=True)
class FlavorAssignment:
    """What a workload could get."""

    podsets: list[PodSetAssignment] = field(default_factory=list)
    usage: Quantities = field(default_factory=dict)
    level: int = 0
    """The highest borrowing level of its flavors."""

    forced: Mode | None = None
    reason: str = ""
    """Why it does not fit, if it does not."""

    tried: Tried | None = None

    @property
    def mode(self) -> Mode:
        """The worst of its pod sets."""
        if not self.podsets:
            return Mode.NO_FIT
        return min(each.mode for each in self.podsets) if self.forced is None else self.forced

    @property
    def contested(self) -> frozenset[tuple[str, str]]:
        """What there must be preemption for."""
        return frozenset(
            (chosen.flavor, resource)
            for podset in self.podsets
            for resource, chosen in podset.flavors.items()
            if chosen.mode == Mode.PREEMPT
        )

    @property
    def message(self) -> str:
        """Kueue's text of the facts."""
        return "; ".join(
            f"couldn't assign flavors to pod set {each.podset.name}: {', '.join(sorted(str(f) for f in each.facts))}"
            for each in self.podsets
            if each.facts
        )

    def facts(self) -> dict[str, tuple[Fact, ...]]:
        """Return the facts by pod set."""
        return {each.podset.name: tuple(each.facts) for each in self.podsets if each.facts}

    def flavors(self) -> dict[str, Mapping[str, str]]:
        """Return the flavors by pod set and resource."""
        return {
            each.podset.name: {resource: chosen.flavor for resource, chosen in each.flavors.items()}
            for each in self.podsets
        }

    def append(self, podset: PodSetAssignment) -> None:
        """Add a pod set, and its usage."""
        self.podsets.append(podset)
        for resource, chosen in podset.flavors.items():
            self.level = max(self.level, chosen.level)
            fr = (chosen.flavor, resource)
            self.usage[fr] = plus(self.usage.get(fr, 0), podset.requests.get(resource, 0))

    def admission(self, queue: str) -> Admission:
        """Return it as an admission."""
        return Admission(
            queue,
            tuple(
                PodSetAdmission(
                    each.podset.name,
                    each.count,
                    {resource: chosen.flavor for resource, chosen in each.flavors.items()},
                    {resource: each.requests.get(resource, 0) for resource in each.flavors},
                    each.topology,
                )
                for each in self.podsets
            ),
        )
