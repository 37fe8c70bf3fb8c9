"""What local queues have used lately, for admission fair sharing: a moving average of each.

At each sampling: new = (1 - alpha) * old + alpha * current, alpha = 1 - 0.5 ** (interval / half-life). A reservation
adds alpha * request at once, so that a queue cannot send many before the next sampling. (Kueue: KEP 4136.)
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from netns.governance.model import Workload
from netns.governance.settings import UsageSharing


class UsageLedger:
    """The averages, by local queue."""

    def __init__(self, sharing: UsageSharing) -> None:
        self.sharing = sharing
        self.used: dict[str, dict[str, float]] = {}
        self.sampled_at: dict[str, float] = {}

    def sample(self, queue: str, current: Mapping[str, float], *, now: float) -> None:
        """Take note of what a local queue uses now."""
        interval_s = now - self.sampled_at.get(queue, now - self.sharing.sampling_s)
        alpha, old = self._alpha(interval_s), self.used.get(queue, {})
        self.used[queue] = {
            resource: (1 - alpha) * old.get(resource, 0) + alpha * current.get(resource, 0)
            for resource in {*old, *current}
        }
        self.sampled_at[queue] = now

    def reserve(self, workload: Workload) -> None:
        """Add the penalty of a reservation."""
        alpha, used = self._alpha(self.sharing.sampling_s), self.used.setdefault(workload.queue, {})
        for podset in workload.podsets:
            for resource, amount in podset.requests.items():
                used[resource] = used.get(resource, 0) + alpha * amount * workload.count_of(podset)

    def forget(self, queue: str) -> None:
        """Drop a local queue."""
        self.used.pop(queue, None)
        self.sampled_at.pop(queue, None)

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

    def _alpha(self, interval_s: float) -> float:
        half_life_s = self.sharing.half_life_s
        return 0.0 if half_life_s == 0 else 1 - 0.5 ** (interval_s / half_life_s)
