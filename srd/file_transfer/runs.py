"""What a sender does with a file's chunks, in runs: it sends data, names holes, and hashes what is there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto

Range = tuple[int, int]
"""First chunk and number."""


class RunKind(Enum):
    """Of a run."""

    DATA = auto()
    """To be sent."""
    HOLE = auto()
    """Zeros that are not stored."""
    THERE = auto()
    """The receiver has it."""


@dataclass(frozen=True, slots=True)
class ChunkRun:
    """Successive chunks of one kind."""

    kind: RunKind
    first: int
    end: int


def runs(chunks: int, *, holes: Sequence[Range], there: Sequence[Range]) -> Iterator[ChunkRun]:
    """Yield the runs of a file of so many chunks. Ranges are in order and do not overlap; what is there goes first."""
    at = 0
    for first, count in there:
        yield from _with_holes(at, first, holes)
        yield ChunkRun(RunKind.THERE, first, at := first + count)
    yield from _with_holes(at, chunks, holes)


def _with_holes(at: int, end: int, holes: Sequence[Range]) -> Iterator[ChunkRun]:
    for first, count in holes:
        hole, hole_end = max(first, at), min(first + count, end)
        if hole < hole_end:
            if at < hole:
                yield ChunkRun(RunKind.DATA, at, hole)
            yield ChunkRun(RunKind.HOLE, hole, at := hole_end)
    if at < end:
        yield ChunkRun(RunKind.DATA, at, end)
