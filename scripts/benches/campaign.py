"""Campaigns: scenarios that are drawn by seed, one after the other; torture, hostile, chaos and card-fuzz.

A scenario with faults is printed with the command that plays it again.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

import click

from scripts.benches.case import CaseOptions
from scripts.harness.steps import step

SHOWN: Final = 5
"""Faults of each kind that are printed of a scenario."""
_SHOWN_CHARACTERS: Final = 4000


def planned(request: CaseOptions, *, runs: int) -> int:
    """Return how many scenarios there are: those that are asked for, one if it is a seed's, otherwise `runs`."""
    return request.runs or (runs if request.seed is None else 1)


def seeds(first: int, *, runs: int | None, seconds: float = 0.0) -> Iterator[int]:
    """Yield the seed of each scenario, and say how far it is; None: until the time is up, and at least one."""
    began_at, done = time.monotonic(), 0
    while not done or (done < runs if runs else time.monotonic() < began_at + seconds):
        fraction = done / runs if runs else (time.monotonic() - began_at) / (seconds or 1.0)
        step(f"seed {first + done}", fraction=fraction)
        yield first + done
        done += 1


def complain(faults: Iterable[tuple[str, str]], *, command: str) -> None:
    """Print faults, each a kind and a text, and the arguments of `scripts/bench` that repeat them; nothing for none."""
    counts = Counter[str]()
    for kind, text in faults:
        if not counts:
            click.echo(f"faults; replay with: scripts/bench {command}", err=True)
        counts[kind] += 1
        if counts[kind] <= SHOWN:
            click.echo(f"    {kind}: {text[:_SHOWN_CHARACTERS]}", err=True)
    for kind, count in counts.items():
        if count > SHOWN:
            click.echo(f"    {kind}: {count - SHOWN} more", err=True)
