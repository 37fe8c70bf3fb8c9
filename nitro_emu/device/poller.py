"""The card's loop over doorbells: passes while programs are active, sleep with kicks and a bounded rescan otherwise."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable
from typing import Final

from nitro_emu.device.doorbells import Doorbells
from nitro_emu.device.shared import drain_eventfd

_log: Final = logging.getLogger(__name__)
RESCAN_S: Final = 0.05
"""How often doorbells are looked at that the card sleeps on: a missed kick (see `doorbells`) costs this at most."""


class Poller:
    """Looks at doorbells, and lets those that hold work back have another turn (`run_soon`)."""

    def __init__(self, *, poll_s: float, busy_poll: bool) -> None:
        """`poll_s`: how long a program counts as active after its last doorbell or completion."""
        self._loop = asyncio.get_running_loop()
        self._poll_s = poll_s
        self._busy_poll = busy_poll
        self._active: dict[Doorbells, None] = {}
        self._asleep: dict[Doorbells, None] = {}
        self._soon: dict[Callable[[], None], None] = {}
        self._is_scheduled = False
        self._is_closed = False
        self._rescan = self._loop.call_later(RESCAN_S, self._on_rescan)

    def add(self, doorbells: Doorbells, *, kick_fd: int) -> None:
        """Look at the doorbells of a program from now on; it writes the eventfd `kick_fd` while the card sleeps."""
        self._asleep[doorbells] = None
        self.touch(doorbells)
        self._loop.add_reader(kick_fd, self._on_kick, doorbells, kick_fd)

    def _on_kick(self, doorbells: Doorbells, kick_fd: int) -> None:
        drain_eventfd(kick_fd)
        self.touch(doorbells)

    def remove(self, doorbells: Doorbells, *, kick_fd: int) -> None:
        """Look at them no more."""
        self._loop.remove_reader(kick_fd)
        self._active.pop(doorbells, None)
        self._asleep.pop(doorbells, None)

    def touch(self, doorbells: Doorbells) -> None:
        """Note that a program is active: it was kicked, or has got a completion and will ring soon."""
        doorbells.active_until = time.monotonic() + self._poll_s
        if doorbells in self._asleep:
            del self._asleep[doorbells]
            doorbells.wake()
            self._active[doorbells] = None
            self._schedule()

    def run_soon(self, work: Callable[[], None]) -> None:
        """Call `work` in the next pass: it has done its share of this one."""
        self._soon[work] = None
        self._schedule()

    def _schedule(self) -> None:
        if not self._is_scheduled and not self._is_closed:
            self._is_scheduled = True
            self._loop.call_soon(self._pass)

    def _pass(self) -> None:
        """Look at the doorbells of all active programs once; go on as long as there are any."""
        self._is_scheduled = False
        if self._is_closed:
            return
        soon, self._soon = self._soon, {}
        for work in soon:
            self._try(work)
        now = time.monotonic()
        worked = bool(soon)
        for doorbells in list(self._active):
            if doorbells in self._active:  # no earlier one has ended it
                worked |= bool(self._try(self._look, doorbells, now))
        if self._active or self._soon:
            if not worked:
                os.sched_yield()  # programs that poll, and other cards, may share this processor
            self._schedule()

    def _look(self, doorbells: Doorbells, now: float) -> bool:
        """Look at the doorbells of an active program; return whether any had changed."""
        if doorbells.scan():
            doorbells.active_until = now + self._poll_s
            return True
        if now >= doorbells.active_until and not self._busy_poll and doorbells.sleep():
            self._active.pop(doorbells, None)
            self._asleep[doorbells] = None
        return False

    def _try(self, work: Callable[..., object], *arguments: object) -> object:
        """Call `work`. An error in it ends neither the loop nor the turns of other programs."""
        try:
            return work(*arguments)
        except Exception:
            _log.exception("a doorbell's work failed by an internal error")
            return None

    def _on_rescan(self) -> None:
        for doorbells in list(self._asleep):
            if doorbells in self._asleep and self._try(doorbells.scan):
                self.touch(doorbells)
        self._rescan = self._loop.call_later(RESCAN_S, self._on_rescan)

    def close(self) -> None:
        """Look at no doorbell any more."""
        self._is_closed = True
        self._rescan.cancel()
        self._soon.clear()
