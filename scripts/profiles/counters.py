"""Reads the output of cProfile and strace -c as shares."""

from __future__ import annotations

import pstats
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

EVENT_LOOPS: Final = {("runners.py", "run"), ("selectors.py", "select")}
"""Functions of the event loop. uvloop appears as its caller, as Python sees only its callbacks."""
WAITING: Final = {"futex", "epoll_wait", "epoll_pwait", "poll", "ppoll", "select", "clock_nanosleep", "wait4"}
"""System calls that wait."""
_ROOT: Final = Path(__file__).resolve().parent.parent.parent


@dataclass(frozen=True, slots=True)
class Share:
    """One function or system call."""

    name: str
    fraction: float
    """Share of all time measured at this end: its own time without its callees."""
    calls: int
    us_per_call: float


def function_shares(path: Path) -> list[Share]:
    """Read a cProfile dump; the largest share first, without waiting and the bench's own work."""
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
    """Whether a function belongs to the bench, or to the event loop, whose own time is mostly sleep."""
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
    """Read the table that strace -c prints; the largest share first, without waiting calls."""
    spent = []
    for line in text.splitlines():
        words = line.split()  # % time, seconds, usecs/call, calls, (errors,) syscall
        if len(words) >= 5 and words[0].replace(".", "", 1).isdigit() and words[-1] not in {"total", *WAITING}:
            spent.append((words[-1], float(words[1]), int(words[3]), float(words[2])))
    whole_s = sum(seconds for _, seconds, _, _ in spent)
    shares = [Share(name, seconds / whole_s, calls, each_us) for name, seconds, calls, each_us in spent]
    return sorted(shares, key=lambda share: -share.fraction)
