"""How far a cell is while it is measured."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Progress:
    """What has arrived so far."""

    seconds: float
    """Since the start."""
    size_bytes: int
    total_bytes: int
    event: str
    """What happened to the fabric last; empty if nothing did."""


OnProgress = Callable[[Progress], None]
