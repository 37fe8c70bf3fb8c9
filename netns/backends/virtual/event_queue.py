"""Virtual time: what is to happen when, done in order, the clock jumping from one moment to the next.

Rules.
1. Time is in integer nanoseconds and never goes back. What is set for the past happens now.
2. Things of one moment happen in the order in which they were set. Nothing else decides, so that a run can be repeated.
3. When all of a moment has happened, and before the clock jumps, `rest` is called: who gathers what arrives at one
   moment hands it on there. It may set more for the same moment.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush

Action = Callable[[int], None]
"""What happens; it is told the time in ns."""


class EventQueue:
    """`at` sets an action, `run` lives through them."""

    __slots__ = ("_heap", "_order", "now_ns", "remaining")

    def __init__(self) -> None:
        self.now_ns = 0
        self.remaining: Action | None = None
        self._heap: list[tuple[int, int, Action]] = []
        self._order = 0

    def at(self, at_ns: int, action: Action) -> None:
        """Set `action` for `at_ns`, or for now if that has passed."""
        self._order += 1
        heappush(self._heap, (max(at_ns, self.now_ns), self._order, action))

    @property
    def next_at_ns(self) -> int | None:
        """When something happens next; None if nothing is set."""
        return self._heap[0][0] if self._heap else None

    def run(self, *, until_ns: int, done: Callable[[], bool] | None = None) -> bool:
        """Live until `until_ns`, included, or until `done` holds at the end of a moment; return whether it did.

        Without `done`, or if it never holds, the clock stands at `until_ns` afterwards.
        """
        heap = self._heap
        if done is not None and done():
            return True
        while heap and heap[0][0] <= until_ns:
            self._run_until(heap[0][0])
            if done is not None and done():
                return True
        self.now_ns = max(self.now_ns, until_ns)
        return False

    def _run_until(self, now_ns: int) -> None:
        """Everything of one moment."""
        heap, rest = self._heap, self.remaining
        self.now_ns = now_ns
        while heap and heap[0][0] == now_ns:
            while heap and heap[0][0] == now_ns:
                heappop(heap)[2](now_ns)
            if rest is not None:
                rest(now_ns)
