"""What the command line asks for instead of what a grid's file says. Pure, but for a look at the file to send."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from srd.compare.errors import GridError
from srd.compare.file import check, file_size, file_to_send
from srd.compare.grid import Grid
from srd.compare.traffic import File


def overridden(
    grid: Grid,
    *,
    transports: str | None = None,
    conditions: str | None = None,
    seeds: int | None = None,
    file: Path | None = None,
    size_bytes: int | None = None,
) -> Grid:
    """Return a grid with what was chosen, checked; None: as the grid has it. Raises GridError.

    `transports` and `conditions` are keys, separated by commas. Workloads of a file send `file`, or `size_bytes` random
    ones.
    """
    kept = _chosen(conditions, grid.conditions, option="--conditions")
    chosen = replace(
        grid,
        transports=_chosen(transports, grid.transports, option="--transports"),
        conditions={name: grid.conditions[name] for name in kept},
        seeds=grid.seeds if seeds is None else tuple(range(1, seeds + 1)),
    )
    if file is not None and size_bytes is not None:
        raise GridError("--file, --size: give one of them")
    sent = file_to_send(file, at="--file") if file is not None else None
    if size_bytes is not None:
        sent = File(file_size(size_bytes, at="--size"))
    if sent is not None:
        if not any(isinstance(traffic, File) for traffic in grid.workloads.values()):
            raise GridError(f"--file, --size: no workload of {grid.name} sends a file")
        workloads = {name: sent if isinstance(traffic, File) else traffic for name, traffic in grid.workloads.items()}
        chosen = replace(chosen, workloads=workloads)
    check(chosen)
    return chosen


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
