"""How far long work is, and the time left: one line on a terminal, elsewhere a line now and then; on stderr.

Work has parts, each of a kind. A part will take what those of its kind took, or took the last time, or else what all
that are done took on average. A part that knows how far it is says so. No library is needed, because setup shows its
work, too.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, RLock, Thread
from types import TracebackType
from typing import IO, Final, Self

REDRAW_S: Final = 1.0
"""Between two drawings on a terminal: each takes time of the cores that are being measured."""
PLAIN_S: Final = 30.0
"""Between two lines where there is no terminal."""
BAR_COLUMNS: Final = 20
FALLBACK_COLUMNS: Final = 80
_ERASE: Final = "\r\x1b[K"


def clock(seconds: float | None) -> str:
    """Return a time, such as 2:05."""
    if seconds is None:
        return "-:--"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02d}"


class Estimate:
    """What parts will take, by their kinds. `last`: seconds that a part of a kind took the last time."""

    def __init__(self, last: Mapping[str, float] | None = None) -> None:
        self._last = dict(last or {})
        self._took_s = defaultdict[str, float](float)
        self._count = Counter[str]()

    @classmethod
    def read(cls, path: Path) -> Self:
        """Return what `write` has kept; nothing is known if there is no such file, or if it is damaged."""
        with suppress(OSError, ValueError, AttributeError, TypeError):
            return cls({str(kind): float(took_s) for kind, took_s in json.loads(path.read_text()).items()})
        return cls()

    def write(self, path: Path) -> None:
        """Keep what parts took, for the next time. Where the file cannot be written, nothing is kept."""
        with suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(self.means()))

    def means(self) -> dict[str, float]:
        """Return what a part takes, in seconds, of all kinds that are known."""
        return self._last | {kind: round(self._took_s[kind] / count, 3) for kind, count in self._count.items()}

    def add(self, kind: str, *, took_s: float) -> None:
        """Note how long a part took."""
        self._took_s[kind] += took_s
        self._count[kind] += 1

    def part_s(self, kind: str) -> float | None:
        """Return how long a part of this kind will take; None: nothing is known."""
        if count := self._count[kind]:
            return self._took_s[kind] / count
        if kind in self._last:
            return self._last[kind]
        if done := self._count.total():
            return sum(self._took_s.values()) / done
        return None

    def left_s(self, kinds: Iterable[str]) -> float | None:
        """Return how long all these will take; None: nothing is known."""
        known = [(self.part_s(kind), count) for kind, count in Counter(iter(kinds)).items()]
        return None if any(took is None for took, _ in known) else sum((took or 0.0) * count for took, count in known)


class Progress:
    """Shows work; a context manager. `kinds`: of each part, in their order.

    `workers`: so many parts are done at a time, and end in any order. Not `is_counted`: who looks on need not know the
    number of parts. Not `is_plain`: only a terminal shows anything. What others print meanwhile, they print in `above`.
    """

    def __init__(
        self,
        name: str,
        kinds: Iterable[str],
        *,
        estimate: Estimate | None = None,
        workers: int = 1,
        is_counted: bool = True,
        is_plain: bool = True,
        stream: IO[str] | None = None,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.estimate = estimate or Estimate()
        self._name = name
        self._left = Counter(iter(kinds))  # of a mapping: its keys
        self._total = self._left.total()
        self._workers = workers
        self._is_counted = is_counted
        self._stream = stream or sys.stderr
        self._is_live = self._stream.isatty() and os.environ.get("TERM") != "dumb"
        self._every_s = REDRAW_S if self._is_live else PLAIN_S
        self._is_shown = self._is_live or is_plain
        self._clock_s = clock_s
        self._began_at = self._part_at = clock_s()
        self._fraction = self._whole_s = 0.0
        """How much of the part is done, and how long all of it takes by that."""
        self._what = ""
        self._lock = RLock()
        self._stopped = Event()
        self._thread = Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._began_at = self._part_at = self._clock_s()
        if self._is_live:
            self._draw()
        if self._is_shown:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Show nothing any more. Further calls have no effect."""
        with self._lock:
            if self._stopped.is_set():
                return
            self._stopped.set()
            if self._is_live:
                self._write(_ERASE)

    def at(self, what: str, fraction: float | None = None) -> None:
        """Say what is being done; `fraction`: how much of the part is done, if that is known."""
        with self._lock:
            self._what = what
            if fraction is not None and fraction != self._fraction:
                self._fraction, self._whole_s = fraction, (self._clock_s() - self._part_at) / (fraction or 1.0)

    def end(self, kind: str, *, took_s: float | None = None, is_measured: bool = True) -> None:
        """Note that a part has ended, which took so long (None: since the one before).

        Not `is_measured`: it was passed over, and says nothing about the others.
        """
        with self._lock:
            now = self._clock_s()
            if is_measured:
                self.estimate.add(kind, took_s=now - self._part_at if took_s is None else took_s)
            self._left[kind] -= 1
            if self._left[kind] <= 0:
                del self._left[kind]
            self._part_at, self._fraction, self._what = now, 0.0, ""
            if self._is_live and self._workers == 1 and not self._stopped.is_set():
                self._draw()

    def say(self, line: str) -> None:
        """Print a line, above this one."""
        with self.above():
            self._write(f"{line}\n")

    @contextmanager
    def above(self) -> Iterator[None]:
        """Have whole lines printed in the block where the line is, and draw the line below them."""
        with self._lock:
            is_shown = self._is_live and not self._stopped.is_set()
            if is_shown:
                self._write(_ERASE)
            yield
            if is_shown:
                self._draw()

    def left_s(self) -> float | None:
        """Return the time left; None when nothing is known."""
        if not self._left:
            return 0.0
        since_s = self._clock_s() - self._part_at
        current = next(iter(self._left))
        rest = self._left - Counter([current])
        part_s = self._whole_s if self._fraction else self.estimate.part_s(current)
        if part_s is not None and part_s < since_s and not rest:
            return None  # the last part takes longer than was known
        rest_s = self.estimate.left_s(rest.elements())
        if rest_s is None and part_s is not None:
            rest_s = part_s * rest.total()
        return None if part_s is None or rest_s is None else max(part_s - since_s, 0.0) + rest_s / self._workers

    def text(self) -> str:
        """Return the line."""
        left_s = self.left_s()
        words = [] if left_s is None else [f"{clock(left_s)} left"]
        if self._total > 1 and self._is_counted:
            words.insert(0, f"{self._total - self._left.total():,} of {self._total:,}")
        elif self._total == 1 and self._fraction:
            words.insert(0, f"{self._fraction:.0%}")
        if left_s is None:
            words.append(f"{clock(self._clock_s() - self._began_at)} so far")
        return f"{self._name}: {', '.join(words)}{self._what and f': {self._what}'}"

    def _draw(self) -> None:
        done = self._total - self._left.total() + self._fraction
        filled = int(BAR_COLUMNS * done / max(self._total, 1))
        line = f"[{'#' * filled}{'-' * (BAR_COLUMNS - filled)}] {self.text()}"
        self._write(_ERASE + line[: self._columns() - 1])

    def _columns(self) -> int:
        with suppress(OSError, ValueError):
            return os.get_terminal_size(self._stream.fileno()).columns or FALLBACK_COLUMNS
        return FALLBACK_COLUMNS

    def _write(self, text: str) -> None:
        with suppress(OSError, ValueError):  # a terminal that is gone is no reason to end the work
            self._stream.write(text)
            self._stream.flush()

    def _run(self) -> None:
        while not self._stopped.wait(self._every_s):
            with self._lock:
                if self._stopped.is_set():
                    return
                if self._is_live:
                    self._draw()
                else:
                    self._write(f"{self.text()}\n")
