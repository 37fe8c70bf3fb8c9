"""The doorbells of one program, and when they are looked at.

1. A program rings by a store to its UAR memfd. While it is active, the card looks at all its doorbells in each pass of
   its loop (`scan`); no system call is needed at either end.
2. After a while without a doorbell the card sleeps on it: it sets need_kick, and looks once more, since a program may
   have rung before it could see that. From then on a program that rings writes its kick eventfd.
3. A processor may let a program's load of need_kick overtake its store to the doorbell, so that a kick is missed. So
   the card looks at the doorbells of those it sleeps on every `RESCAN_S` (`poller`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
import numpy.typing as npt

from devmem.region import Region
from nitro_emu.efa.abi.memory import DOORBELL_BYTES, NEED_KICK_OFFSET

FEW: Final = 24
"""Up to so many doorbells are compared one by one, more by NumPy."""


class Doorbells:
    """The words of a UAR memfd, each with a handler for its changes."""

    def __init__(self, uar: Region, status: Region) -> None:
        self._view = memoryview(uar)
        self._words = self._view.cast("I")
        self._array: npt.NDArray[np.uint32] = np.frombuffer(self._view, np.uint32)
        self._status_view = memoryview(status)
        self._status = self._status_view.cast("I")
        self._handlers: dict[int, Callable[[], None]] = {}  # by index of the word
        self._seen: dict[int, int] = {}
        self._indices = np.zeros(0, np.intp)
        self._values: npt.NDArray[np.uint32] = np.zeros(0, np.uint32)  # as last seen, of `_indices`
        self.active_until = 0.0
        """When to sleep on it, unless something happens before."""
        self.sleeps = False

    def word(self, offset: int) -> Callable[[], int]:
        """Return a function that reads the doorbell at a byte offset."""
        words, index = self._words, offset // DOORBELL_BYTES
        return lambda: words[index]

    def watch(self, offset: int, handler: Callable[[], None]) -> None:
        """Call `handler` when the doorbell at a byte offset has changed."""
        index = offset // DOORBELL_BYTES
        self._words[index] = 0
        self._handlers[index], self._seen[index] = handler, 0
        self._rebuild()

    def clear(self, offset: int) -> None:
        """Begin a doorbell at 0, and do not watch it."""
        self._words[offset // DOORBELL_BYTES] = 0

    def unwatch(self, offset: int) -> None:
        """Ignore a doorbell from now on."""
        index = offset // DOORBELL_BYTES
        self._handlers.pop(index, None)
        self._seen.pop(index, None)
        self._rebuild()

    def _rebuild(self) -> None:
        self._indices = np.fromiter(self._handlers, np.intp)
        self._values = np.fromiter((self._seen[index] for index in self._handlers), np.uint32)

    def scan(self) -> bool:
        """Call the handlers of the doorbells that have changed; return whether there were any."""
        if len(self._handlers) > FEW:
            values = self._array[self._indices]
            at = np.flatnonzero(values != self._values)
            found = list(zip(at.tolist(), self._indices[at].tolist(), values[at].tolist(), strict=True))
            for position, index, value in found:
                if handler := self._handlers.get(index):  # an earlier handler may have ended this one
                    self._values[position] = self._seen[index] = value
                    handler()
            return bool(found)
        changed = [index for index, seen in self._seen.items() if self._words[index] != seen]
        for index in changed:
            if handler := self._handlers.get(index):
                self._seen[index] = self._words[index]
                handler()
        return bool(changed)

    def sleep(self) -> bool:
        """Ask for kicks, and look once more; return whether it may sleep: no doorbell has changed meanwhile."""
        self._status[NEED_KICK_OFFSET // DOORBELL_BYTES] = 1
        self.sleeps = True
        if self.scan():
            self.wake()
        return self.sleeps

    def wake(self) -> None:
        """Ask for no kicks: the card looks by itself."""
        self._status[NEED_KICK_OFFSET // DOORBELL_BYTES] = 0
        self.sleeps = False

    def close(self) -> None:
        """Release the memory's views."""
        self._handlers.clear()
        self._seen.clear()
        self._array = np.zeros(0, np.uint32)
        for view in (self._words, self._view, self._status, self._status_view):
            view.release()
