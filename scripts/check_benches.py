#!/usr/bin/env python3
"""scripts/check_benches.py [--long] [CASE ...]: fail unless every bench in virtual time meets its requirements.

`make test` runs it with the installed package, which is faster as it is compiled: seed 1 of all cases but the longest,
and a few seeds of chaos. With --long it runs seeds 1 to 5 of all, and chaos with fresh seeds, which are printed.

Exit status: 0: all met; 1: a requirement was missed, or could not be measured; each is named; 2: wrong usage.
"""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import secrets
import signal
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import Final

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
    from scripts.installed import start

    start("scripts/check_benches.py")

import click

from netns.base.progress import Estimate, Progress
from netns.programs import end_with
from scripts.benches.case import CaseOptions
from scripts.benches.cli import PAST
from scripts.benches.outcome import CaseOutcome, Figures, Round
from scripts.benches.registry import CASES
from scripts.benches.scenarios import SEEDS
from scripts.harness.errors import BenchError

LONGEST_FIRST: Final = (
    "wild", "incast-8192", "roce", "unequal", "long-fat", "loss", "fair", "blackhole", "incast", "ecn", "incast-1000",
    "permutation", "jitter", "slow-links", "slow-path", "messages", "virtual", "chaos",
)  # fmt: skip
"""The cases of the virtual backend with requirements, in an order in which the parallel processes end together."""
LONG: Final = ("incast-8192", "unequal")
"""Cases that run with --long, or when they are named: with `wild`, which stays, they take two thirds of the time."""
CHAOS: Final = "chaos"
CHAOS_SEEDS: Final = range(301, 351)
"""Of the chaos case without --long: others than those of tests/scripts/benches/chaos."""
FRESH_CHAOS_RUNS: Final = 200
LIMIT_S: Final = 300
"""Time after which a run counts as hanging: many times the longest."""


@dataclass(frozen=True, slots=True)
class CaseRun:
    """One seed of one case: its figures, or the reason why there are none."""

    case: str
    seed: int
    figures: Figures
    error: str = ""
    took_s: float = 0.0

    def complaints(self) -> list[str]:
        """The requirements that were missed, with the command that repeats the run."""
        if self.error:
            wrong = [self.error]
        else:
            values = [(wanted, self.figures[wanted.figure]) for wanted in CASES[self.case].wanted]
            wrong = [f"{each.figure} {value:.4g}, wanted {each}" for each, value in values if not each.met(value)]
        return [
            f"{self.case} seed {self.seed}: {what}; repeat with: scripts/bench {self.case} --seed {self.seed}"
            for what in wrong
        ]


def measure(name: str, seed: int) -> CaseRun:
    signal.alarm(LIMIT_S)
    began_at = time.monotonic()
    try:
        (round_,) = CASES[name].rounds(CaseOptions(seed=seed))
    except BenchError as error:
        return CaseRun(name, seed, {}, str(error))
    except Exception as error:  # noqa: BLE001 - an exception is a result, too; the other runs go on
        return CaseRun(name, seed, {}, f"{type(error).__name__}: {error}")
    finally:
        signal.alarm(0)
    return CaseRun(name, seed, round_.ours, took_s=time.monotonic() - began_at)


def _begin(parent_pid: int) -> None:
    """End with the parent, and when the alarm signal arrives: print a traceback then."""
    end_with(parent_pid)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    faulthandler.register(signal.SIGALRM, file=2, chain=True)


def measure_all(jobs: Sequence[tuple[str, int]]) -> list[CaseRun]:
    past = Estimate.read(PAST)
    context = multiprocessing.get_context("fork")  # nothing here has threads yet
    workers = min(os.cpu_count() or 1, len(jobs))
    with ProcessPoolExecutor(workers, mp_context=context, initializer=_begin, initargs=(os.getpid(),)) as pool:
        futures = [pool.submit(measure, name, seed) for name, seed in jobs]
        kinds = {future: name for future, (name, _) in zip(futures, jobs, strict=True)}
        with Progress("benches in virtual time", kinds.values(), estimate=past, workers=workers) as shown:
            for future in as_completed(futures):
                if future.exception() is None:
                    shown.end(kinds[future], took_s=future.result().took_s)
    past.write(PAST)
    return [future.result() for future in futures]


def report(name: str, runs: Sequence[CaseRun]) -> str:
    """Return a line with a case's worst values over its seeds."""
    rounds = tuple(Round(run.seed, run.figures) for run in runs if not run.error)
    if not rounds:
        return f"{name}: nothing was measured"
    checks = CaseOutcome(name, CASES[name].fabric, rounds, CASES[name].wanted).checks
    figures = ", ".join(f"{wanted.figure} {value:.4g} ({wanted})" for wanted, value in checks.items())
    first, last = min(run.seed for run in runs), max(run.seed for run in runs)
    return f"{name}: {f'seed {first}' if first == last else f'seeds {first} to {last}'}: {figures}"


def seeds_of(name: str, *, long: bool) -> Sequence[int]:
    if name != CHAOS:
        return SEEDS if long else SEEDS[:1]
    first = secrets.randbelow(2**31 - FRESH_CHAOS_RUNS)
    return range(first, first + FRESH_CHAOS_RUNS) if long else CHAOS_SEEDS


@click.command()
@click.argument("names", metavar="[CASE]...", type=click.Choice(LONGEST_FIRST), nargs=-1)
@click.option("--long", is_flag=True, help="Seeds 1 to 5, not 1 only; the longest cases too; chaos with fresh seeds.")
def main(*, names: tuple[str, ...], long: bool) -> None:
    """Fail unless every CASE meets its requirements. Default: all but incast-8192 and unequal, with --long all."""
    chosen = names or [name for name in LONGEST_FIRST if long or name not in LONG]
    jobs = [(name, seed) for name in LONGEST_FIRST if name in chosen for seed in seeds_of(name, long=long)]
    try:
        runs = measure_all(jobs)
    except BrokenProcessPool:
        click.echo(f"scripts/check_benches.py: a run died, or took longer than {LIMIT_S} s: see above", err=True)
        sys.exit(1)
    for name in dict.fromkeys(name for name, _ in jobs):
        click.echo(report(name, [run for run in runs if run.case == name]))
    complaints = [complaint for run in runs for complaint in run.complaints()]
    for complaint in complaints:
        click.echo(f"missed: {complaint}", err=True)
    sys.exit(1 if complaints else 0)


if __name__ == "__main__":
    main()
