"""The workloads that wait in one cluster queue: in the heap, or parked until something frees quota for them."""

from __future__ import annotations

import heapq
from collections.abc import Callable

from netns.governance.model import ClusterQueue, Workload
from netns.governance.order import becomes_sticky, may_requeue, queue_key, shape, stays
from netns.governance.settings import Settings

_Key = tuple[int, float, str, str]


class Line:
    """The waiting workloads of a queue."""

    def __init__(self, queue: ClusterQueue, settings: Settings) -> None:
        self.queue, self.settings = queue, settings
        self.active: dict[str, Workload] = {}
        self.parked: dict[str, Workload] = {}
        self.sticky: str | None = None
        """The head that waits for its preemptions."""
        self.preemptor: str | None = None
        """The last one that preempted, whatever the strategy."""
        self._heap: list[tuple[_Key, str]] = []
        self._keys: dict[str, _Key] = {}
        self._shapes: set[object] = set()
        self._shape_of: dict[str, object] = {}
        self._alike: dict[object, dict[str, Workload]] = {}
        """The active ones, by shape."""

    def __contains__(self, key: str) -> bool:
        return key in self.active or key in self.parked

    def add(self, workload: Workload, *, now: float) -> None:
        """Queue a new workload, or one that has changed."""
        self.remove(workload.key)
        if not may_requeue(workload, now) or (self._shapes and self._shape(workload) in self._shapes):
            self.parked[workload.key] = workload
        else:
            self._activate(workload)

    def remove(self, key: str) -> None:
        """Take a workload out, if it is here."""
        self._deactivate(key)
        self.parked.pop(key, None)
        self._shape_of.pop(key, None)
        if self.sticky == key:
            self.sticky = None
        if self.preemptor == key:
            self.preemptor = None

    def requeue(self, workload: Workload, reason: str, *, now: float) -> None:
        """Put back a head that was not admitted, for the given requeue reason."""
        strategy = self.queue.strategy
        if reason == "PendingPreemption":
            self.preemptor = workload.key
            self.sticky = workload.key if becomes_sticky(reason, strategy=strategy) else None
        if may_requeue(workload, now) and stays(reason, strategy=strategy, tried=workload.tried):
            return
        self._park(workload)
        if (
            self.settings.park_equal_shapes
            and strategy == "BestEffortFIFO"
            and reason in {"NoFit", "PreemptionNoCandidates"}
        ):
            same = self._shape(workload)
            self._shapes.add(same)
            for other in list(self._alike.get(same, {}).values()):
                self._park(other)

    def unpark(self, *, now: float, admits: Callable[[Workload], bool]) -> int:
        """Bring back the parked ones whose backoff is over, and whose namespaces the queue admits; return how many."""
        self._shapes.clear()
        back = [each for each in self.parked.values() if may_requeue(each, now) and admits(each)]
        for workload in back:
            del self.parked[workload.key]
            self._activate(workload)
        return len(back)

    def head(self, usage: Callable[[Workload], float] | None = None) -> Workload | None:
        """Return the first one; with `usage`, that of the local queue with the least comes first."""
        if not self.active:
            return None
        if usage is not None:
            return min(
                self.active.values(), key=lambda each: (usage(each), each.key != self.sticky, self._keys[each.key])
            )
        if self.sticky in self.active:
            return self.active[self.sticky]
        while self._keys.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self.active[self._heap[0][1]]

    def ordered(self) -> list[str]:
        """Return the keys of the active ones, the head first."""
        return sorted(self.active, key=lambda key: (key != self.sticky, self._keys[key]))

    def _activate(self, workload: Workload) -> None:
        key = queue_key(workload, self.settings)
        self.active[workload.key] = workload
        self._alike.setdefault(self._shape(workload), {})[workload.key] = workload
        self._keys[workload.key] = key
        heapq.heappush(self._heap, (key, workload.key))

    def _park(self, workload: Workload) -> None:
        self._deactivate(workload.key)
        self.parked[workload.key] = workload

    def _deactivate(self, key: str) -> None:
        if self.active.pop(key, None) is not None:
            alike = self._alike[self._shape_of[key]]
            del alike[key]
            if not alike:
                del self._alike[self._shape_of[key]]
        self._keys.pop(key, None)

    def _shape(self, workload: Workload) -> object:
        """Return its shape, which is the same until it is added again."""
        found = self._shape_of.get(workload.key)
        if found is None:
            found = self._shape_of[workload.key] = shape(workload, self.settings)
        return found
