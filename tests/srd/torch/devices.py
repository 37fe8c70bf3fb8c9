"""Devices for tests, whose memory is the host's: one copies by threads, one when it is told to."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from devmem import Region


class Point:
    """An event that is done when it is told to be, or has failed."""

    def __init__(self, work: Callable[[], object] = int) -> None:
        self._work = work
        self._ended = threading.Event()
        self._error: RuntimeError | None = None

    def end(self, error: RuntimeError | None = None) -> None:
        """Do the work, unless it fails."""
        self._error = error
        if error is None:
            self._work()
        self._ended.set()

    def synchronize(self) -> None:
        self._ended.wait()
        if self._error is not None:
            raise self._error


class HeldDevice:
    """Keeps copies until the test ends them, each by itself."""

    def __init__(self, _: object = None) -> None:
        self.outs: list[Point] = []
        self.ins: list[Point] = []
        self.unpinned = threading.Event()
        self.marked = Point()
        self._is_over = False

    def pin(self, region: Region) -> HeldDevice:
        region.array[:] = 255  # what must not be sent
        return self

    def close(self) -> None:
        self.unpinned.set()

    def mark(self) -> Point:
        return self.marked

    def copy_out(self, source: Any, target: Any, *, after: Any) -> Point:
        assert after is self.marked
        return self._begin(self.outs, lambda: target.copy_(source))

    def copy_in(self, source: Any, target: Any, *, after: Any) -> Point:
        assert after is self.marked
        return self._begin(self.ins, lambda: target.copy_(source))

    def _begin(self, to: list[Point], work: Callable[[], object]) -> Point:
        to.append(Point(work))
        if self._is_over:
            to[-1].end()
        return to[-1]

    def has_begun(self, *, ins: int) -> bool:
        return len(self.ins) == ins

    def synchronize(self) -> None:
        for point in [*self.outs, *self.ins]:
            point._ended.wait()

    def let_go(self) -> None:
        """End what is left, and what begins later, so that nothing waits."""
        self._is_over = True
        for point in [*self.outs, *self.ins]:
            point._ended.set()


class HostDevice(HeldDevice):
    """Copies by a thread for each direction, in order, as streams do."""

    def __init__(self, _: object = None) -> None:
        super().__init__()
        self.marked.end()
        self._threads = ThreadPoolExecutor(1), ThreadPoolExecutor(1)

    def _begin(self, to: list[Point], work: Callable[[], object]) -> Point:
        point = super()._begin(to, work)
        self._threads[to is self.ins].submit(point.end)
        return point
