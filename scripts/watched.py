#!/usr/bin/env python3
"""scripts/watched.py LOG PART[|PART ...] COMMAND...: a command of scripts/setup, how far it is, and the time left.

The command's output goes to LOG, and to stderr when it fails. The command has parts, in this order. A line
`setup: PART: N of M ...` in its output says that the parts before have ended, and how far this one is. What parts took
is kept for the next time. It needs no library: it runs before there is any. The exit status is the command's.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Final

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from netns.base.progress import Estimate, Progress
from netns.programs import ending_with_us

PAST: Final = Path("build", "setup-seconds.json")
LOOK_S: Final = 0.2
_SAID: Final = re.compile(r"^setup: (.*)$", re.MULTILINE)
_FRACTION: Final = re.compile(r"(\d+) of (\d+)")


def run(log: Path, parts: list[str], command: list[str], *, past: Path = PAST) -> int:
    """Run the command, and show it; return its exit status."""
    estimate, left = Estimate.read(past), list(parts)
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as output, Progress("setup", parts, estimate=estimate, is_counted=False) as shown:
        child = subprocess.Popen(ending_with_us(command), stdout=output, stderr=output, stdin=subprocess.DEVNULL)
        while child.poll() is None:
            _show(log.read_text(errors="replace"), left, shown)
            try:
                child.wait(LOOK_S)
            except subprocess.TimeoutExpired:
                continue
        if child.returncode == 0:
            _show(log.read_text(errors="replace"), left, shown)
            shown.end(left[0])
            if len(left) == 1:  # else not all was done, as where what was compiled before is taken
                estimate.write(past)
    if child.returncode:
        sys.stderr.write(log.read_text(errors="replace"))
    return child.returncode


def _show(text: str, left: list[str], shown: Progress) -> None:
    said = _SAID.findall(text)
    what = said[-1] if said else left[0]
    while (later := [part for part in left if what.startswith(part)]) and later[0] != left[0]:
        shown.end(left.pop(0))
    found = _FRACTION.search(what)
    shown.at(what, None if found is None else int(found[1]) / int(found[2]))


if __name__ == "__main__":
    sys.exit(run(Path(sys.argv[1]), sys.argv[2].split("|"), sys.argv[3:]))
