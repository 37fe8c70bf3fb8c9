"""A timer with the kernel's resolution as a readable file: event loops round their own to a millisecond."""

from __future__ import annotations

import os
import time
from contextlib import suppress

from srd.io import syscalls


class TimerFd:
    """`arm` it; when `fd` is readable, `take` it."""

    def __init__(self) -> None:
        self.fd = syscalls.timerfd_create()
        self._at: float | None = None  # what the kernel has
        self._wanted_at: float | None = None

    def arm(self, at: float | None) -> None:
        """Become readable at `at` (seconds of `time.monotonic`), or before; never, for None.

        A time that moves later is not told to the kernel: nearly every turn moves it, and hardly any reaches it.
        """
        self._wanted_at = at
        if at == self._at or (at is not None and self._at is not None and self._at < at):
            return
        self._at = at
        syscalls.timerfd_settime(self.fd, at_ns=0 if at is None else max(int(at * 1e9), 1))

    def acknowledge(self) -> bool:
        """Read the expiry, so that the file is no longer readable; return whether the time has come.

        If it moved later meanwhile, it is told to the kernel now.
        """
        self._at = None
        with suppress(BlockingIOError):  # armed anew since
            os.read(self.fd, 8)
        due = self._wanted_at is not None and time.monotonic() >= self._wanted_at
        if not due:
            self.arm(self._wanted_at)
        return due

    def close(self) -> None:
        """Close the file."""
        os.close(self.fd)
