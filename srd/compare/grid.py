"""A grid and its cells, as data."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from netns.faults.schedule import ScheduledEvent
from netns.netem.tc_format import netem_arguments
from netns.topology.model import Topology
from srd.compare.traffic import Traffic, describe

TRANSPORTS: Final = {"srd": "SRD", "cubic": "TCP cubic", "bbr": "TCP BBR", "mptcp": "MPTCP"}
"""By key: the display names."""

_MEASURED_BY: Final = 5
"""Part of each digest; greater when cells are measured in another way, so that what is old is measured again."""


@dataclass(frozen=True, slots=True)
class Condition:
    """What is wrong with a fabric."""

    shape: Mapping[str, Any]
    """Changes of the links, in tc's notation (srd/compare/fabric.py says of which)."""

    events: tuple[ScheduledEvent, ...] = ()
    """The failure plan; times are from the start of the flows."""

    busiest_link_fails_at: float | None = None
    """When the receivers have this share of all bytes, the link between switches that carried most fails silently, for
    good. A transport with one path loses that path."""

    base: Path = Path()
    """The directory for relative names of files in `shape`."""

    def __str__(self) -> str:
        parts = [f"each link from a spine: {', '.join(f'{key} {value}' for key, value in self.shape.items())}"]
        parts = parts if self.shape else []
        parts += map(str, self.events)
        if self.busiest_link_fails_at is not None:
            share = f"{100 * self.busiest_link_fails_at:g} %"
            parts.append(f"the link between switches that carried most dies at {share}, silently")
        return "; ".join(parts) or "the fabric as it is"

    def describe(self) -> dict[str, Any]:
        """Return it for digests and reports."""
        return {
            "shape": dict(self.shape),
            "events": [f"{event.at_us / 1e6:g} s: {event}, {event.direction}" for event in self.events],
            "busiest_link_fails_at": self.busiest_link_fails_at,
        }


FIGURES: Final = ("goodput", "sent_again")


@dataclass(frozen=True, slots=True)
class WantedFigure:
    """A bound of a figure, of the median over the seeds."""

    transport: str
    figure: str
    """One of FIGURES: of `sent_again` a share."""
    over: str | None = None
    """The figure is over that of this transport."""
    least: float | None = None
    most: float | None = None
    conditions: tuple[str, ...] = ()
    """In which; all if empty."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One measurement."""

    fabric: str
    seed: int
    condition: str
    workload: str
    transport: str

    def __str__(self) -> str:
        return f"{self.fabric}, {self.condition}, {self.workload}, seed {self.seed}: {self.transport}"


@dataclass(frozen=True, slots=True)
class Grid:
    """Everything that is to be measured; each mapping's order is the report's."""

    name: str
    fabrics: Mapping[str, Topology]
    transports: tuple[str, ...]
    conditions: Mapping[str, Condition]
    workloads: Mapping[str, Traffic]
    seeds: tuple[int, ...]
    timeout_s: float
    """How long a cell's flows may take."""
    wanted: tuple[WantedFigure, ...] = ()
    """What is checked, and said."""
    must_complete: tuple[str, ...] = ()
    """Transports of which each cell must be ok, or the command fails."""

    def __len__(self) -> int:
        """Return the number of cells."""
        return math.prod(map(len, (self.seeds, self.fabrics, self.workloads, self.conditions, self.transports)))

    def cells(self) -> Iterator[Cell]:
        """Yield all cells in the order of measuring: seeds are the outer loop, and transports take turns."""
        for seed in self.seeds:
            for fabric in self.fabrics:
                for workload in self.workloads:
                    for condition in self.conditions:
                        for transport in self.transports:
                            yield Cell(fabric, seed, condition, workload, transport)

    def describe(self) -> dict[str, Any]:
        """Return it for reports."""
        return {
            "name": self.name,
            "fabrics": {name: describe_fabric(topology) for name, topology in self.fabrics.items()},
            "transports": list(self.transports),
            "conditions": {name: condition.describe() for name, condition in self.conditions.items()},
            "workloads": {name: describe(traffic) for name, traffic in self.workloads.items()},
            "seeds": list(self.seeds),
            "timeout_s": self.timeout_s,
        }

    def digest(self, cell: Cell) -> str:
        """Return a digest of everything that decides a cell's measurement; names do not."""
        topology = asdict(self.fabrics[cell.fabric])
        decides = {
            "measured_by": _MEASURED_BY,
            "topology": {key: value for key, value in topology.items() if key not in {"name", "seed", "captures"}},
            "seed": cell.seed,
            "condition": self.conditions[cell.condition].describe(),
            "workload": describe(self.workloads[cell.workload]),
            "transport": cell.transport,
            "timeout_s": self.timeout_s,
        }
        return hashlib.sha256(json.dumps(decides, sort_keys=True, default=str).encode()).hexdigest()[:16]


def describe_fabric(topology: Topology) -> str:
    """Return a fabric in one line."""
    tiers = [f"{len(topology.hosts)} hosts"]
    for tier, plural in (("leaf", "leaves"), ("aggregation", "aggregations"), ("spine", "spines")):
        count = sum(switch.tier == tier for switch in topology.switches)
        if count:
            tiers.append(f"{count} {tier if count == 1 else plural}")
    shapes = {
        " ".join(netem_arguments(shape))
        for link in topology.links
        for shape in (link.shape_ab, link.shape_ba)
        if shape is not None
    }
    return f"{', '.join(tiers)}; MTU {topology.mtu}; shaped links: {'; '.join(sorted(shapes)) or 'none'}"
