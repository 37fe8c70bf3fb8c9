"""netem's delay tables: what `distribution normal` means to tc, with the same numbers.

Sources: iproute2, netem/normal.c, pareto.c, paretonormal.c (which generate /usr/lib/tc/*.dist) and tc/q_netem.c, which
reads those files; Linux, net/sched/sch_netem.c, tabledist().

Theory of operation. A table is an inverse cumulative distribution: entry i of n is the value below which a fraction i/n
lies, in units of 1/8192 of the jitter. netem draws an entry and adds entry x jitter / 8192 to the delay. So the jitter
is the standard deviation for `normal` only: that of `pareto` is 0.82 of it, of `paretonormal` 0.83, and of uniform (no
table) 0.58.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from statistics import NormalDist
from typing import TYPE_CHECKING, Final

import numpy as np

from netns.base.naming import named
from netns.errors import ShapeError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

SCALE: Final = 8192  # NETEM_DIST_SCALE
MAX_ENTRIES: Final = 16384  # NETEM_DIST_MAX
MAX_FILE_BYTES: Final = 1 << 20
MAX_DIGITS: Final = 20
INT16_MIN, INT16_MAX = -(2**15), 2**15 - 1

_BINS: Final = 16384  # of the generators, which write every fourth
_STRIDE: Final = 4
_PARETO_SHAPE: Final = 3.0

UNIFORM: Final = "uniform"
BUILTIN: Final = (UNIFORM, "normal", "pareto", "paretonormal")


def table(distribution: str) -> tuple[int, ...] | None:
    """Return the table of a distribution: one of BUILTIN, or the path of a file; None for `uniform`.

    Raises ShapeError for a file that cannot be read or contains no table.
    """
    if distribution == UNIFORM:
        return None
    if distribution in BUILTIN:
        return _builtin(distribution)
    return _read(Path(distribution))


def scaled(entry: int, *, jitter_ns: int) -> int:
    """Return the distance of an entry from the mean: tabledist() in integers, with C's division towards zero."""
    low = jitter_ns % SCALE * entry
    low += SCALE // 2 if low >= 0 else -(SCALE // 2)
    return int(_towards_zero(low, SCALE)) + jitter_ns // SCALE * entry


@cache
def _builtin(name: str) -> tuple[int, ...]:
    if name == "normal":
        return _clipped(_normal())
    if name == "pareto":
        return _clipped(_pareto())
    mixed = (_towards_zero(normal + 3 * pareto, 4) for normal, pareto in zip(_normal(), _pareto(), strict=True))
    return _clipped(mixed)


def _normal() -> list[int]:
    """Return for each bin the largest point of the generator's grid in it."""
    grid: NDArray[np.float64] = np.cumsum(np.concatenate(([-10.0], np.full(401_000, 0.00005))))  # adds as its loop does
    edges = [NormalDist().inv_cdf((bin_ + 0.5) / _BINS) for bin_ in range(0, _BINS, _STRIDE)]
    return [round(float(grid[at - 1]) * SCALE) for at in np.searchsorted(grid, edges)]


def _pareto() -> list[int]:
    fractions = (left / _BINS for left in range(_BINS, 0, -_STRIDE))
    return [
        round(min((1 / fraction ** (1 / _PARETO_SHAPE) - 1.5) * (4 / 3) * SCALE, INT16_MAX)) for fraction in fractions
    ]


def _clipped(values: Iterable[int]) -> tuple[int, ...]:
    return tuple(min(max(value, INT16_MIN), INT16_MAX) for value in values)


def _towards_zero(dividend: int, divisor: int) -> int:
    return dividend // divisor if dividend >= 0 else -(-dividend // divisor)


def _read(path: Path) -> tuple[int, ...]:
    """Read a table in tc's file format: integers, and comment lines that begin with #."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: a name that no file can have
        known = ", ".join(BUILTIN)
        reason = error.strerror if isinstance(error, OSError) else error
        raise ShapeError(f"distribution: {path}: {reason}; name one of {known}, or the file of a table") from None
    if len(content) > MAX_FILE_BYTES:
        raise ShapeError(f"distribution: {path}: larger than {MAX_FILE_BYTES >> 20} MiB; this is no table")
    with named(f"distribution: {path}: not a table of integers: ", ValueError, error=ShapeError):
        lines = content.decode().splitlines()
        texts = [text for line in lines if not line.lstrip().startswith("#") for text in line.split()]
        entries = tuple(int(text[:MAX_DIGITS]) for text in texts[: MAX_ENTRIES + 1])  # truncated: out of range anyway
    if not 1 <= len(texts) <= MAX_ENTRIES:
        raise ShapeError(f"distribution: {path}: {len(texts)} entries; netem takes 1 to {MAX_ENTRIES}")
    for entry in entries:
        if not INT16_MIN <= entry <= INT16_MAX:
            raise ShapeError(f"distribution: {path}: {entry} does not fit 16 bits, as netem's entries do")
    return entries
