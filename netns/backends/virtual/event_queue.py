"""Virtual time: a queue of timed actions, executed in order; the clock jumps from one event time to the next.

Rules.
1. Time is in integer nanoseconds and never goes back. An action scheduled for the past is executed now.
2. Actions of the same time are executed in the order in which they were scheduled. Nothing else influences the order,
   so that a run can be repeated.
3. After all actions of a time, before the clock advances, `remaining` is called. It delivers what has been collected
   at that time, and may schedule further actions for the same time.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush

Action = Callable[[int], None]
"""A callback; its argument is the time in ns."""


class EventQueue:
    """Schedule actions with `at`, execute them with `run`."""

    __slots__ = ("_heap", "_order", "now_ns", "remaining")

    def __init__(self) -> None:
        self.now_ns = 0
        self.remaining: Action | None = None
        self._heap: list[tuple[int, int, Action]] = []
        self._order = 0

    def at(self, at_ns: int, action: Action) -> None:
        """Schedule `action` for `at_ns`, or for now if that time has passed."""
        self._order += 1
        heappush(self._heap, (max(at_ns, self.now_ns), self._order, action))

    def run(self, *, until_ns: int, done: Callable[[], bool] | None = None) -> bool:
        """Execute actions up to `until_ns`, included, or until `done()` is true; it is checked after each time.

        Return whether `done()` was true. If not, the clock is at `until_ns` afterwards.
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
        """Execute all actions of one time."""
        heap, remaining = self._heap, self.remaining
        self.now_ns = now_ns
        while heap and heap[0][0] == now_ns:
            while heap and heap[0][0] == now_ns:
                heappop(heap)[2](now_ns)
            if remaining is not None:
                remaining(now_ns)
