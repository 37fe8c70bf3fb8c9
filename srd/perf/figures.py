"""Figures of a run, and the tables that perftest prints of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self

import numpy as np

from netns.base.percentile import percentile

LATENCY_HEAD: Final = (
    " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]"
    "   99% percentile[usec]   99.9% percentile[usec]"
)
BANDWIDTH_HEAD: Final = " #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]"
MB: Final = 1 << 20
"""Of perftest's MB/sec."""


@dataclass(frozen=True, slots=True)
class LatencyFigures:
    """Of the times of one size, in microseconds."""

    size_bytes: int
    iterations: int
    min_us: float
    max_us: float
    typical_us: float
    """The median."""
    mean_us: float
    stdev_us: float
    p99_us: float
    p999_us: float

    @classmethod
    def of(cls, times_ns: Sequence[float], *, size_bytes: int) -> Self:
        """Return the figures of these times."""
        array = np.sort(np.asarray(times_ns, np.float64)) / 1e3
        ordered: list[float] = array.tolist()
        return cls(
            size_bytes=size_bytes,
            iterations=len(ordered),
            min_us=ordered[0],
            max_us=ordered[-1],
            typical_us=percentile(ordered, 50),
            mean_us=float(array.mean()),
            stdev_us=float(array.std()),
            p99_us=percentile(ordered, 99),
            p999_us=percentile(ordered, 99.9),
        )

    @property
    def row(self) -> str:
        """A row of the table."""
        return (
            f" {self.size_bytes:<7d} {self.iterations:<10d} {self.min_us:>13.2f}  {self.max_us:>13.2f}  "
            f"{self.typical_us:>15.2f}  {self.mean_us:>13.2f}  {self.stdev_us:>15.2f}  {self.p99_us:>21.2f}  "
            f"{self.p999_us:>23.2f}"
        )


@dataclass(frozen=True, slots=True)
class BandwidthFigures:
    """Of one size."""

    size_bytes: int
    iterations: int
    peak_mb_per_s: float
    """Of the fastest series of as many messages as there may be at a time."""
    mean_mb_per_s: float
    million_messages_per_s: float

    @classmethod
    def of(cls, progress: Sequence[tuple[int, int]], *, size_bytes: int, depth: int) -> Self:
        """Return the figures of a run: of (time in ns, messages completed), the first with 0, in order."""
        seconds = (progress[-1][0] - progress[0][0]) / 1e9
        count = progress[-1][1]
        rate, peak = count / seconds, peak_rate(progress, at_least=min(depth, count))
        return cls(
            size_bytes=size_bytes,
            iterations=count,
            peak_mb_per_s=max(peak, rate) * size_bytes / MB,
            mean_mb_per_s=rate * size_bytes / MB,
            million_messages_per_s=rate / 1e6,
        )

    @property
    def row(self) -> str:
        """A row of the table."""
        return (
            f" {self.size_bytes:<10d} {self.iterations:<13d} {self.peak_mb_per_s:>16.2f} "
            f"{self.mean_mb_per_s:>20.2f} {self.million_messages_per_s:>16.6f}"
        )


def peak_rate(progress: Sequence[tuple[int, int]], *, at_least: int) -> float:
    """Return the rate of the fastest series of completions, at least so many messages long, a second."""
    best, begin = 0.0, 0
    for end_ns, end_count in progress:
        while begin + 1 < len(progress) and end_count - progress[begin + 1][1] >= at_least:
            begin += 1
        begin_ns, begin_count = progress[begin]
        if end_count - begin_count >= at_least and end_ns > begin_ns:
            best = max(best, (end_count - begin_count) * 1e9 / (end_ns - begin_ns))
    return best
