"""Where processor time goes, by room: the kernel, the interpreter, other libraries, and each part of the compiled code.

Linux perf samples a process by the software clock, which every machine has, and each sample counts where it was taken.
mypyc names a function after the end of its module's name that is its own: `CPyDef_tx___Transmitter___flush` is of
srd/io/tx.py.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, Self

import srd
from scripts.harness.errors import BenchError

SAMPLES_PER_S: Final = 1999
"""Prime, so that no periodic work keeps step with it."""
KERNEL: Final = "kernel"
INTERPRETER: Final = "interpreter"
OTHER: Final = "other libraries"
ROOMS: Final[Mapping[str, tuple[str, ...]]] = {
    "api": ("peer", "endpoint", "message", "inbox", "send_memory", "notify"),
    "engine": ("engine", "rx_queues"),
    "core": ("proto/",),
    "send": ("proto/send/", "proto/outgoing/", "proto/work_request"),
    "recv": ("proto/recv/",),
    "paths": ("proto/paths/",),
    "congestion": ("proto/congestion/",),
    "wire": ("proto/wire/",),
    "io": ("io/",),
    "secure": ("secure/", "proto/base/security"),
}
"""Room -> how the paths of its modules begin, below srd/. The longest that fits counts."""
_COMPILED: Final = re.compile(r"CPy(?:Def|Py|Gen)_(.+)")


def room_of(path: str) -> str:
    """Return the room of a module, by its path below srd/; OTHER for one outside of the transport."""
    fits = [(len(start), room) for room, starts in ROOMS.items() for start in starts if path.startswith(start)]
    return max(fits)[1] if fits else OTHER


def modules() -> dict[str, str]:
    """Return the room of each module by each end of its name, as mypyc joins it; the shortest module wins."""
    root = Path(srd.__file__).parent
    found: dict[str, str] = {}
    for path in sorted(root.rglob("*.py"), key=lambda path: len(path.parts)):
        inner = path.relative_to(root).with_suffix("")
        parts = ("srd", *inner.parts)
        for first in range(len(parts)):
            found.setdefault("___".join(parts[first:]), room_of(inner.as_posix()))
    return found


def room(symbol: str, library: str, *, rooms: Mapping[str, str]) -> str:
    """Return where a sample was taken, from what `perf script` says of it. `rooms`: see `modules`."""
    if library.startswith("[kernel") or library.endswith(".ko"):
        return KERNEL
    if match := _COMPILED.match(symbol):
        pieces = match[1].split("___")
        for count in range(len(pieces) - 1, 0, -1):
            if found := rooms.get("___".join(pieces[:count])):
                return found
        return OTHER
    name = Path(library).name
    if name.startswith(("python", "libpython")) or "__mypyc" in name:  # of the latter: mypyc's own run-time library
        return INTERPRETER
    return OTHER


class CommandProfile:
    """Samples of a command that says when they begin. Made by `profile`."""

    def __init__(self, directory: Path) -> None:
        self._data, self.control = directory / "samples", directory / "control"

    @property
    def prefix(self) -> Sequence[str]:
        control = f"--control=fifo:{self.control}"
        options = ["-q", "-e", "cpu-clock", "-F", str(SAMPLES_PER_S), "--delay=-1", control, "-o", str(self._data)]
        return ["perf", "record", *options, "--"]

    def shares(self) -> dict[str, float]:
        """Return room -> its share of the samples. Raises BenchError if there are none."""
        command = ["perf", "script", "-i", str(self._data), "-F", "ip,sym,dso"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise BenchError(f"perf script failed: {done.stderr.strip() or 'no reason given'}")
        return shares(done.stdout.splitlines())

    @classmethod
    @contextmanager
    def made(cls) -> Iterator[Self]:
        with TemporaryDirectory(prefix="srd-bench-perf-") as directory:
            made = cls(Path(directory))
            os.mkfifo(made.control)
            yield made


def shares(lines: Sequence[str]) -> dict[str, float]:
    """Return room -> its share of the samples, of the lines `ADDRESS SYMBOL+OFFSET (LIBRARY)`. Raises BenchError."""
    rooms, found = modules(), Counter[str]()
    for line in lines:
        if match := re.match(r"\s*[0-9a-f]+ (.*) \((.*)\)$", line):
            found[room(match[1], match[2], rooms=rooms)] += 1
    if not found:
        raise BenchError("perf has taken no sample; measure for longer (--seconds)")
    return {name: count / found.total() for name, count in found.most_common()}


def begin(control: Path) -> None:
    """Have perf begin to sample this process."""
    control.write_text("enable\n")
