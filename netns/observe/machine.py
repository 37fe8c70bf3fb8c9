"""The machine of a measurement: what it is, and how busy it was. Figures cannot be interpreted without it."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

# Fields after "cpu" in /proc/stat (proc_stat(5)): user nice system idle iowait irq softirq steal. Guest time, which
# follows, is within user and nice.
_FIELDS: Final = 8
_IDLE, _IOWAIT, _STEAL = 3, 4, 7


@dataclass(frozen=True, slots=True)
class Ticks:
    """Time of all CPUs together, in clock ticks."""

    busy: int
    """Spent on processes and interrupts."""

    stolen: int
    """Runnable, but used by other guests of the hypervisor (steal time)."""

    total: int
    """All, idle time included."""

    @classmethod
    def parse(cls, stat: str) -> Ticks:
        """Read the text of /proc/stat."""
        fields = [int(field) for field in stat.split(maxsplit=_FIELDS + 1)[1 : _FIELDS + 1]]
        idle = fields[_IDLE] + fields[_IOWAIT] + fields[_STEAL]
        return cls(busy=sum(fields) - idle, stolen=fields[_STEAL], total=sum(fields))

    def share(self, part: int, *, since: Ticks) -> float | None:
        """Return `part` of the ticks since then; None if there were none."""
        return part / (self.total - since.total) if self.total > since.total else None


def machine() -> dict[str, str | int]:
    """Return a description of this machine, for reports."""
    return {
        "machine": _processor(),
        "cpu_count": os.cpu_count() or 1,
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "kernel": platform.release(),
        "system": _system(),
        "python": platform.python_version(),
        "iproute2": first_line("ip", "-V"),
    }


def _processor() -> str:
    try:
        found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        found = None
    return found[1] if found else platform.machine()


def _system() -> str:
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        return platform.system()


def first_line(*command: str) -> str:
    """Return the first line that `command` prints, or "unknown", as a missing version must not fail a report."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=5)
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return (done.stdout.strip().splitlines() or ["unknown"])[0]
