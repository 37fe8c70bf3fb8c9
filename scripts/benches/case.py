"""A case of `scripts/bench`: what is measured, what is wanted, and which options it takes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from netns.errors import LabError
from scripts.benches.outcome import Round, Wanted
from scripts.harness.errors import BenchError
from scripts.harness.needs import Need
from srd.sim.errors import SimulationError


@dataclass(frozen=True, slots=True)
class CaseOptions:
    """The user's options; None: the case's default."""

    seed: int | None = None
    """Of the only round, for cases whose random numbers a seed can reproduce."""
    seconds: float | None = None
    """How long to measure, for cases that do not last as long as their messages take."""
    runs: int | None = None
    packets: int | None = None
    plain: bool = False
    directory: Path | None = None
    """Where files are stored, for cases for which the file system matters."""


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    summary: str
    """What happens, in one line: for `scripts/bench --help`, and for the table in docs/simulation.md."""
    fabric: str
    measure: Callable[[CaseOptions], Iterable[Round]]
    """Makes the rounds."""
    wanted: tuple[Wanted, ...]
    options: frozenset[str] = frozenset()
    """The fields of `CaseOptions` that it heeds."""
    needs: tuple[Need, ...] = ()
    """What of others it needs, and for which figures."""
    planned: Callable[[CaseOptions], int] = lambda _: 1
    """How many rounds it will make: for the time left."""

    def rounds(self, request: CaseOptions) -> Iterator[Round]:
        """Measure. Raises BenchError, with the reason in one line, if no valid measurement is possible."""
        try:
            yield from self.measure(request)
        except (LabError, SimulationError) as error:
            raise BenchError(str(error)) from None
