"""The card's loop over doorbells: passes while programs are active, sleep with kicks and a bounded rescan otherwise.

1. A pass looks at the doorbells of all active programs, and polls their engines: an iteration of the event loop costs
   several times as much. Several passes, and one iteration, take turns.
2. While programs of several virtual functions are there, each takes a small share of a pass (`share_loop`): what one
   does may not delay the others by more than that. A virtual function whose programs are inactive, but which others
   send to, has its turns in the passes, too.
3. An error in what is done for a virtual function ends that one (`fail`), neither the loop nor the others.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from nitro_emu.efa.card.doorbells import Doorbells
from nitro_emu.efa.card.shared import drain_eventfd

if TYPE_CHECKING:
    from nitro_emu.efa.card.function import EfaFunction

RESCAN_S: Final = 0.05
"""How often doorbells are looked at that the card sleeps on: a missed kick (see `doorbells`) costs this at most."""
PASSES: Final = 8
"""Passes per iteration of the event loop; the loop has timers, admin commands and the engines of inactive programs."""


class Poller:
    """Looks at doorbells, and lets those that hold work back have another turn (`run_soon`)."""

    def __init__(self, *, poll_s: float, busy_poll: bool) -> None:
        """`poll_s`: how long a program counts as active after its last doorbell or completion."""
        self._loop = asyncio.get_running_loop()
        self._poll_s = poll_s
        self._busy_poll = busy_poll
        self._active: dict[Doorbells, EfaFunction] = {}
        self._asleep: dict[Doorbells, EfaFunction] = {}
        self._soon: dict[Callable[[], None], EfaFunction] = {}
        self._vfs: dict[int, EfaFunction] = {}  # with programs
        self._turns: dict[int, int] = {}  # of their engines, when the last passes began
        self._is_scheduled = False
        self._is_closed = False
        self._rescan = self._loop.call_later(RESCAN_S, self._on_rescan)

    def add(self, doorbells: Doorbells, *, kick_fd: int, vf: EfaFunction) -> None:
        """Look at the doorbells of a program from now on; it writes to `kick_fd` while the card sleeps."""
        self._asleep[doorbells] = vf
        self._choose_shares()
        self.touch(doorbells)
        self._loop.add_reader(kick_fd, self._on_kick, doorbells, kick_fd)

    def _on_kick(self, doorbells: Doorbells, kick_fd: int) -> None:
        drain_eventfd(kick_fd)
        self.touch(doorbells)

    def remove(self, doorbells: Doorbells, *, kick_fd: int) -> None:
        """Look at them no more."""
        self._loop.remove_reader(kick_fd)
        for programs in (self._active, self._asleep):
            if (vf := programs.pop(doorbells, None)) is not None:
                vf.share_loop(is_shared=False)
        self._choose_shares()

    def _choose_shares(self) -> None:
        """Let virtual functions take small shares while there is more than one with a program."""
        self._vfs = {id(vf): vf for vf in (*self._active.values(), *self._asleep.values())}
        for vf in self._vfs.values():
            vf.share_loop(is_shared=len(self._vfs) > 1)

    def touch(self, doorbells: Doorbells) -> None:
        """Note that a program is active: it was kicked, or has got a completion and will ring soon."""
        doorbells.active_until = time.monotonic() + self._poll_s
        if (vf := self._asleep.pop(doorbells, None)) is not None:
            doorbells.wake()
            self._active[doorbells] = vf
            self._schedule()

    def run_soon(self, work: Callable[[], None], *, vf: EfaFunction) -> None:
        """Call `work` in the next pass: it has done its share of this one."""
        self._soon[work] = vf
        self._schedule()

    def forget(self, vf: EfaFunction) -> None:
        """Do nothing for a virtual function any more that has ended; its programs are removed before."""
        self._soon = {work: of for work, of in self._soon.items() if of is not vf}

    def _schedule(self) -> None:
        if not self._is_scheduled and not self._is_closed:
            self._is_scheduled = True
            self._loop.call_soon(self._run)

    def _run(self) -> None:
        """Make some passes; go on in the loop's next iteration as long as a program is active."""
        self._is_scheduled = False
        busy = self._busy()
        for _ in range(PASSES):
            if self._is_closed:
                return
            if not self._pass(busy) or any(vf.yields for vf in self._active.values()):
                os.sched_yield()  # programs that poll, and other cards, may share this processor
            if not self._active:
                break
        if self._active or self._soon:
            self._schedule()

    def _busy(self) -> list[EfaFunction]:
        """Return the virtual functions whose engines have had turns since the last call."""
        before, self._turns = self._turns, {key: vf.turns for key, vf in self._vfs.items()}
        return [self._vfs[key] for key, turns in self._turns.items() if turns != before.get(key)]

    def _pass(self, busy: list[EfaFunction]) -> bool:
        """Look at doorbells; poll the engines of active programs, and `busy` ones; return whether it did anything."""
        soon, self._soon = self._soon, {}
        for work, vf in soon.items():
            self._try(vf, work)
        now = time.monotonic()
        worked = bool(soon)
        vfs = {id(vf): vf for vf in busy}
        for doorbells, vf in list(self._active.items()):
            if doorbells in self._active:  # no earlier one has ended it
                worked |= bool(self._try(vf, self._look, doorbells, now))
                vfs[id(vf)] = vf
        for vf in vfs.values():
            worked |= bool(self._try(vf, vf.poll))
        return worked

    def _look(self, doorbells: Doorbells, now: float) -> bool:
        """Look at the doorbells of an active program; return whether any had changed."""
        if doorbells.scan():
            doorbells.active_until = now + self._poll_s
            return True
        sleeps = now >= doorbells.active_until and not self._busy_poll and doorbells.sleep()
        if sleeps and (vf := self._active.pop(doorbells, None)) is not None:
            self._asleep[doorbells] = vf
        return False

    def _try(self, vf: EfaFunction, work: Callable[..., object], *arguments: object) -> object:
        """Call `work`; an error in it ends its virtual function."""
        try:
            return work(*arguments)
        except Exception as error:  # noqa: BLE001 - logged with its traceback
            vf.fail(error)
            return None

    def _on_rescan(self) -> None:
        for doorbells, vf in list(self._asleep.items()):
            if doorbells in self._asleep and self._try(vf, doorbells.scan):
                self.touch(doorbells)
        self._rescan = self._loop.call_later(RESCAN_S, self._on_rescan)

    def close(self) -> None:
        """Look at no doorbell any more."""
        self._is_closed = True
        self._rescan.cancel()
        self._soon.clear()
