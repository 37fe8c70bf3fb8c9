"""The time for which this process was runnable but waited for a CPU: it makes wake-ups late.

Source: Linux Documentation/scheduler/sched-stats.rst, /proc/PID/schedstat: "time spent waiting on a runqueue".
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

SCHEDSTAT: Final = Path("/proc/self/schedstat")
_LINE_BYTES: Final = 128


class SchedDelay:
    """Read the kernel's statistics of the calling process. Without them, the delay counts as zero."""

    def __init__(self, path: Path = SCHEDSTAT) -> None:
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC) if path.exists() else None

    def waited_ns(self) -> int:
        """Return the ns for which the process was runnable and did not run, since it started."""
        return int(os.pread(self._fd, _LINE_BYTES, 0).split()[1]) if self._fd is not None else 0

    def close(self) -> None:
        """Close the file."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
