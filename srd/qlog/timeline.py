"""A peer's trace in equal intervals: throughput and losses of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from srd.qlog.summary import PeerSummary

INTERVALS = 10
"""Rows of the table: enough to see changes over time, few enough to read."""


@dataclass(slots=True)
class Interval:
    """Sums of one interval, in packets unless the name has another unit."""

    begin_s: float
    """Time since the beginning of the trace."""
    acked_bytes: int = 0
    """Newly acknowledged bytes, headers included."""
    landed_bytes: int = 0
    """New payload bytes received."""
    reordered: int = 0
    """Packets declared lost because later packets of their path had been reported."""
    timed_out: int = 0
    """Packets declared lost by timeout."""
    resent: int = 0


def timeline(peer: PeerSummary) -> tuple[float, list[Interval]]:
    """Return the length of an interval in seconds, and `INTERVALS` of them from the peer's first event to its last."""
    length_s = (peer.ended_s - peer.began_s) / INTERVALS
    rows = [Interval(peer.began_s + index * length_s) for index in range(INTERVALS)]

    def at(time_s: float) -> Interval:
        index = int((time_s - peer.began_s) / length_s) if length_s > 0 else 0
        return rows[min(max(index, 0), INTERVALS - 1)]

    for time_s, size_bytes in _steps(peer.acked_at_s, peer.acked_bytes):
        at(time_s).acked_bytes += size_bytes
    for time_s, size_bytes in _steps(peer.landed_at_s, peer.landed_bytes):
        at(time_s).landed_bytes += size_bytes
    for loss in peer.losses:
        if loss.trigger == "timeout":
            at(loss.at_s).timed_out += loss.packets
        else:
            at(loss.at_s).reordered += loss.packets
    for time_s, packets in peer.resent:
        at(time_s).resent += packets
    return length_s, rows


def _steps(times_s: Sequence[float], totals: Sequence[int]) -> list[tuple[float, int]]:
    """Return the increments of a running total."""
    return [(time_s, after - before) for time_s, (before, after) in zip(times_s, pairwise((0, *totals)), strict=True)]
