"""What local queues have used lately, for admission fair sharing: a moving average of each.

A reservation adds alpha * request, alpha = 1 - 0.5 ** (interval / half-life), so that a queue cannot send many before
the next sampling, which is the caller's. (Kueue: KEP 4136.)
"""

from __future__ import annotations

import math

from netns.governance.model import Workload
from netns.governance.settings import UsageSharing


class UsageLedger:
    """The averages, by local queue."""

    def __init__(self, sharing: UsageSharing) -> None:
        self.sharing = sharing
        self.used: dict[str, dict[str, float]] = {}

    def reserve(self, workload: Workload) -> None:
        """Add the penalty of a reservation."""
        half_life_s, used = self.sharing.half_life_s, self.used.setdefault(workload.queue, {})
        alpha = 0.0 if half_life_s == 0 else 1 - 0.5 ** (self.sharing.sampling_s / half_life_s)
        for podset in workload.podsets:
            for resource, amount in podset.requests.items():
                used[resource] = used.get(resource, 0) + alpha * amount * workload.count_of(podset)

    def forget(self, queue: str) -> None:
        """Drop a local queue."""
        self.used.pop(queue, None)

    def value(self, queue: str, *, weight: float) -> float:
        """Return one number: the weighted sum of its resources, by the queue's weight. CPU counts in cores."""
        if weight <= 0:
            return math.inf
        weights = self.sharing.resource_weights
        return (
            sum(
                weights.get(resource, 1.0) * (amount / 1000 if resource == "cpu" else amount)
                for resource, amount in sorted(self.used.get(queue, {}).items())
            )
            / weight
        )
