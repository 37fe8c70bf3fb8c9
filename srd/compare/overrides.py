"""What the command line asks for instead of what a grid's file says. Pure, but for a look at the file to send."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from srd.compare.errors import GridError
from srd.compare.file import check, file_size, file_to_send
from srd.compare.grid import Grid
from srd.compare.traffic import File


@dataclass(frozen=True, slots=True)
class GridOverrides:
    """Parts of a grid, or others than its own; None: as the grid has it."""

    transports: str | None = None
    """Keys, separated by commas."""
    conditions: str | None = None
    """The same."""
    seeds: int | None = None
    file: Path | None = None
    """What workloads of a file send."""
    size_bytes: int | None = None
    """How much, of random bytes."""

    def of(self, grid: Grid) -> Grid:
        """Return the grid with what was chosen, checked. Raises GridError."""
        conditions = _chosen(self.conditions, grid.conditions, option="--conditions")
        chosen = replace(
            grid,
            transports=_chosen(self.transports, grid.transports, option="--transports"),
            conditions={name: grid.conditions[name] for name in conditions},
            seeds=grid.seeds if self.seeds is None else tuple(range(1, self.seeds + 1)),
        )
        if (file := self._file()) is not None:
            if not any(isinstance(traffic, File) for traffic in grid.workloads.values()):
                raise GridError(f"--file, --size: no workload of {grid.name} sends a file")
            workloads = {
                name: file if isinstance(traffic, File) else traffic for name, traffic in grid.workloads.items()
            }
            chosen = replace(chosen, workloads=workloads)
        check(chosen)
        return chosen

    def _file(self) -> File | None:
        if self.file is not None and self.size_bytes is not None:
            raise GridError("--file, --size: give one of them")
        if self.file is not None:
            return file_to_send(self.file, at="--file")
        return None if self.size_bytes is None else File(file_size(self.size_bytes, at="--size"))


def _chosen(text: str | None, known: Iterable[str], *, option: str) -> tuple[str, ...]:
    """Return the keys that are named, in the grid's order."""
    keys = tuple(known)
    if text is None:
        return keys
    wanted = [key.strip() for key in text.split(",")]
    unknown = next((key for key in wanted if key not in keys), None)
    if unknown is not None:
        raise GridError(f"{option}: {unknown!r} is none of {', '.join(keys)}")
    return tuple(key for key in keys if key in wanted)
