"""A timer with the kernel's resolution as a readable file, as event loops round their own timers to a millisecond."""

from __future__ import annotations

import os
import time
from contextlib import suppress

from srd.io import syscalls


class TimerFd:
    """A timerfd: `arm` it; when `fd` is readable, `acknowledge` it."""

    def __init__(self) -> None:
        self.fd = syscalls.timerfd_create()
        self._at: float | None = None  # the time that the kernel's timer is set to
        self._wanted_at: float | None = None

    def arm(self, at: float | None) -> None:
        """Become readable at `at` (seconds of `time.monotonic`) or earlier; never for None.

        A later time than the current one is not passed to the kernel, to save a system call: nearly every turn
        postpones the timer, and it hardly ever expires.
        """
        self._wanted_at = at
        if at == self._at or (at is not None and self._at is not None and self._at < at):
            return
        self._at = at
        syscalls.timerfd_settime(self.fd, at_ns=0 if at is None else max(int(at * 1e9), 1))

    def acknowledge(self) -> bool:
        """Read the expiry, so that the file is no longer readable; return whether the wanted time has come.

        If the time was postponed meanwhile, the kernel's timer is set to it now.
        """
        self._at = None
        with suppress(BlockingIOError):  # the timer was armed again after it expired
            os.read(self.fd, 8)
        due = self._wanted_at is not None and time.monotonic() >= self._wanted_at
        if not due:
            self.arm(self._wanted_at)
        return due

    def close(self) -> None:
        """Close the file."""
        os.close(self.fd)
