"""What cProfile and strace -c have written, as shares."""

from __future__ import annotations

import pstats
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

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
    """Read a cProfile dump; the largest first. Waiting (an event loop's poll) is left out: it costs nothing."""
    entries = cast("dict[tuple[str, int, str], tuple[Any, ...]]", cast("Any", pstats.Stats(str(path))).stats)
    spent = {
        where: (float(entry[2]), int(entry[1]))
        for where, entry in entries.items()
        if not _waits(where) and entry[2] > 0
    }
    whole_s = sum(own_s for own_s, _ in spent.values())
    shares = [
        Share(_name(where), own_s / whole_s, calls, own_s / calls * 1e6) for where, (own_s, calls) in spent.items()
    ]
    return sorted(shares, key=lambda share: -share.fraction)


def _waits(where: tuple[str, int, str]) -> bool:
    """Whether a function is the event loop itself, whose own time is mostly sleep."""
    file, _, function = where
    return "run_until_complete" in function or (file == "~" and "sleep" in function)


def _name(where: tuple[str, int, str]) -> str:
    file, line, function = where
    if file == "~":
        return function.strip("<>").removeprefix("built-in method ")
    try:
        return f"{Path(file).relative_to(_ROOT)}:{line} {function}"
    except ValueError:
        return f"{Path(file).name}:{line} {function}"


def syscall_shares(text: str) -> list[Share]:
    """Read the table that strace -c prints; the largest first."""
    shares = []
    for line in text.splitlines():
        words = line.split()
        if len(words) >= 5 and words[0].replace(".", "", 1).isdigit() and words[-1] != "total":
            shares.append(Share(words[-1], float(words[0]) / 100, int(words[3]), float(words[2])))
    return sorted(shares, key=lambda share: -share.fraction)
