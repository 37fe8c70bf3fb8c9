"""The three conditions of the fabric, as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Condition:
    """The faults of the fabric during one transfer."""

    key: str
    """Its name in report.json and on the command line."""

    title: str
    """A short description."""

    spine_loss_percent: float = 0.0
    """Loss at each spine, in each direction."""

    blackhole_at_fraction: float | None = None
    """When the receiver has this fraction of the file, the busiest spine drops everything without notice."""


CONDITIONS: Final = (
    Condition(key="clean", title="nothing lost but by congestion"),
    Condition(key="loss", title="1 % loss on every spine", spine_loss_percent=1.0),
    Condition(key="blackhole", title="the busiest spine fails at 40 %", blackhole_at_fraction=0.4),
)
BY_KEY: Final = {condition.key: condition for condition in CONDITIONS}
