"""What a volume has done: requests, bytes, errors, and how long requests took, as the host sees it."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from typing import Any, Final

from nitro_emu.ebs.request import BlockOperation

BOUNDS_US: Final = tuple(1 << power for power in range(4, 25))
"""Upper bounds of a histogram's buckets: 16 us to 16.8 s, each twice the one before. One more bucket has the rest."""


@dataclass(slots=True)
class Histogram:
    """How many requests took how long."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS_US) + 1))
    sum_us: float = 0.0

    def add(self, us: float) -> None:
        """Count a request."""
        self.counts[bisect_left(BOUNDS_US, us)] += 1
        self.sum_us += us

    @property
    def count(self) -> int:
        """How many requests there were."""
        return sum(self.counts)


@dataclass(slots=True)
class Done:
    """The requests of one kind."""

    operations: int = 0
    bytes: int = 0
    errors: int = 0
    latency: Histogram = field(default_factory=Histogram)


class Statistics:
    """Of one volume, since it was attached."""

    def __init__(self) -> None:
        self.by_command = {command: Done() for command in BlockOperation}
        self.queue_length = 0
        """Requests that are queued or issued now."""

    def as_dict(self) -> dict[str, Any]:
        """Return all as JSON has it."""
        return {
            "queue_length": self.queue_length,
            "requests": {
                command.value: {
                    "operations": done.operations,
                    "bytes": done.bytes,
                    "errors": done.errors,
                    "latency_sum_us": round(done.latency.sum_us),
                    "latency_counts": list(done.latency.counts),
                }
                for command, done in self.by_command.items()
            },
        }
