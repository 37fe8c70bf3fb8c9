"""What cProfile and strace -c have written, as shares."""

from __future__ import annotations

import pstats
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

EVENT_LOOPS: Final = {("runners.py", "run"), ("selectors.py", "select")}
"""uvloop's shows as what runs it: Python sees nothing of it but its callbacks."""
WAITING: Final = {"futex", "epoll_wait", "epoll_pwait", "poll", "ppoll", "select", "clock_nanosleep", "wait4"}
"""System calls that wait."""
_ROOT: Final = Path(__file__).resolve().parent.parent.parent


@dataclass(frozen=True, slots=True)
class Share:
    """One function or system call."""

    name: str
    fraction: float
    """Of all time that was measured at this end: its own, without what it called."""
    calls: int
    us_per_call: float


def function_shares(path: Path) -> list[Share]:
    """Read a cProfile dump; the largest first, without what waits or is the bench's own."""
    entries = cast("dict[tuple[str, int, str], tuple[Any, ...]]", cast("Any", pstats.Stats(str(path))).stats)
    spent = {
        where: (float(entry[2]), int(entry[1]))
        for where, entry in entries.items()
        if entry[2] > 0 and not _is_foreign(where)
    }
    whole_s = sum(own_s for own_s, _ in spent.values())
    shares = [
        Share(_name(where), own_s / whole_s, calls, own_s / calls * 1e6) for where, (own_s, calls) in spent.items()
    ]
    return sorted(shares, key=lambda share: -share.fraction)


def _is_foreign(where: tuple[str, int, str]) -> bool:
    """Whether a function is the event loop itself, whose own time is mostly sleep, or the bench's."""
    file, _, function = where
    sleeps = (Path(file).name, function) in EVENT_LOOPS or "run_until_complete" in function
    return sleeps or Path(file).is_relative_to(_ROOT / "scripts")


def _name(where: tuple[str, int, str]) -> str:
    file, line, function = where
    if file == "~":
        return function.strip("<>").removeprefix("built-in method ")
    try:
        return f"{Path(file).relative_to(_ROOT)}:{line} {function}"
    except ValueError:
        return f"{Path(file).name}:{line} {function}"


def syscall_shares(text: str) -> list[Share]:
    """Read the table that strace -c prints; the largest first, without what waits."""
    spent = []
    for line in text.splitlines():
        words = line.split()  # % time, seconds, usecs/call, calls, (errors,) syscall
        if len(words) >= 5 and words[0].replace(".", "", 1).isdigit() and words[-1] not in {"total", *WAITING}:
            spent.append((words[-1], float(words[1]), int(words[3]), float(words[2])))
    whole_s = sum(seconds for _, seconds, _, _ in spent)
    shares = [Share(name, seconds / whole_s, calls, each_us) for name, seconds, calls, each_us in spent]
    return sorted(shares, key=lambda share: -share.fraction)
