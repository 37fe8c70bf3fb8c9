"""scripts/bench CASE [--json] [--seconds N] [--seed N] [--runs N]: rounds, medians, and requirements.

A signal ends a case that builds namespaces by unwinding it, so that no namespace remains.

Exit status: 0: it ran, whatever the values; 1: no valid measurement was possible, with the reason; 2: wrong usage.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import click
from rich.console import Console
from rich.table import Table

from netns.base.progress import Estimate, Progress
from scripts.benches.case import Case, CaseOptions
from scripts.benches.cases import file, path
from scripts.benches.outcome import CaseOutcome, Round, Wanted
from scripts.benches.owners import owner_of
from scripts.benches.registry import CASES
from scripts.harness.environment import environment
from scripts.harness.errors import BenchError
from scripts.harness.needs import EVERYTHING, lacks
from scripts.harness.program import program
from scripts.harness.steps import heard_by
from scripts.installed import ROOT

REFUSALS: Final = {
    "seconds": "{} lasts as long as its messages take",
    "runs": "{} makes one round for each seed",
    "packets": "{} sends what its messages need",
    "plain": "{} has its own settings",
    "seed": "{} draws no random numbers",
    "directory": "{} stores no files",
}
"""Why a case does not take an option."""
PAST: Final = ROOT / "build" / "bench-seconds.json"
"""What a round of each case took the last time."""
EPILOG: Final = "\b\n" + "\n".join(f"{case.name:12} {case.summary}" for case in CASES.values())


@program("scripts/bench", epilog=EPILOG)
@click.argument("name", metavar="CASE", type=click.Choice(list(CASES)))
@click.option("--json", "as_json", is_flag=True, help="Print the outcome as JSON, one object on stdout's last line.")
@click.option(
    "--seconds",
    type=click.FloatRange(min=0, min_open=True),
    help="How long to measure (virtual time on the virtual backend), for cases that last that long.",
)
@click.option(
    "--seed",
    type=click.IntRange(min=0, max=2**31),
    help="Measure this seed only. Default: 1 to 5. On real hosts there are none.",
)
@click.option(
    "--runs", type=click.IntRange(min=1), help="How many runs: of chaos, each with a seed of its own; else rounds."
)
@click.option("--packets", type=click.IntRange(min=1), help="How many hostile packets to send; of scale: packet hops.")
@click.option("--plain", is_flag=True, help="Send hostile packets beside a transfer that is not encrypted.")
@click.option(
    "--directory",
    type=click.Path(exists=True, file_okay=False, writable=True, path_type=Path),
    help=f"Where `file` stores its files, and so on which file system.  [default: {file.DIRECTORY}]",
)
@click.option("--profile", is_flag=True, help="Of `path`: print where the processor time goes, as sampled by perf.")
def main(
    *,
    name: str,
    as_json: bool,
    seconds: float | None,
    seed: int | None,
    runs: int | None,
    packets: int | None,
    plain: bool,
    directory: Path | None,
    profile: bool,
) -> None:
    """Run bench CASE and compare its figures with their requirements."""
    case = CASES[name]
    request = CaseOptions(seed=seed, seconds=seconds, runs=runs, packets=packets, plain=plain, directory=directory)
    _check(case, request)
    if profile and name != "path":
        raise click.UsageError(f"--profile: only of path, not of {name}; for others run perf record beside it")
    console = Console(stderr=as_json, highlight=False)
    try:
        with _own_keys():
            if profile:
                _profile(console, seconds=seconds or path.SECONDS, as_json=as_json)
                return
            outcome = _measure(case, request)
    except BenchError as error:
        click.echo(f"scripts/bench {name}: {error}", err=True)
        sys.exit(1)
    console.print(_figures(outcome))
    for wanted, value in outcome.checks.items():
        verdict = _verdict(name, wanted, value)
        console.print(f"{wanted.figure} {value:.4g}, wanted {wanted}: {verdict}", soft_wrap=True)
    for wanted, reason in outcome.unmeasured.items():
        console.print(f"{wanted.figure}, wanted {wanted}: not measured ({reason})", markup=False, soft_wrap=True)
    if as_json:
        click.echo(json.dumps(outcome.to_dict()))


def _check(case: Case, request: CaseOptions) -> None:
    for option, why in REFUSALS.items():
        if getattr(request, option) not in (None, False) and option not in case.options:
            raise click.UsageError(f"--{option}: {why.format(case.name)}; leave it out")


def _profile(console: Console, *, seconds: float, as_json: bool) -> None:
    """Print where the processor time of each workload goes, in percent. Raises BenchError."""
    if reason := lacks("perf"):
        raise BenchError(reason)
    found = dict(path.profile(seconds))
    table = Table(title="path: processor time of the asking end, %", title_justify="left")
    table.add_column("")
    for workload in found:
        table.add_column(workload, justify="right")
    for room in dict.fromkeys(room for shares in found.values() for room in shares):
        table.add_row(room, *(f"{100 * shares.get(room, 0):.1f}" for shares in found.values()))
    console.print(table)
    if as_json:
        click.echo(json.dumps({"case": "path", "shares": found, "environment": environment()}))


@contextmanager
def _own_keys() -> Iterator[None]:
    """Have all processes use keys of the bench instead of the user's, and this one until the bench has ended."""
    before = os.environ.get("SRD_HOME")
    with TemporaryDirectory(prefix="srd-bench-keys-") as directory:
        os.environ["SRD_HOME"] = directory
        try:
            yield
        finally:  # else what uses keys in this process after that creates the directory again
            if before is None:
                del os.environ["SRD_HOME"]
            else:
                os.environ["SRD_HOME"] = before


def _verdict(name: str, wanted: Wanted, value: float) -> str:
    """Return whether a bound is met; if not, with its owner."""
    if wanted.met(value):
        return "[green]met[/]"
    owner = owner_of(name, wanted.figure)
    return "[red]missed[/], and no issue owns it" if owner is None else f"[red]missed[/]; owner: {owner}"


def _missing(case: Case) -> dict[str, tuple[str, ...]]:
    """Print which needs of a case are not met; return the reasons, with the figures of each.

    Raises BenchError if nothing can be measured without one of them.
    """
    missing = {reason: need.figures for need in case.needs if (reason := need.unmet) is not None}
    for reason, figures in missing.items():
        if figures == EVERYTHING:
            raise BenchError(f"{reason}; without it there is nothing to measure")
        click.echo(f"scripts/bench {case.name}: {reason}; not measured: {', '.join(figures)}", err=True)
    return missing


def _measure(case: Case, request: CaseOptions) -> CaseOutcome:
    missing = _missing(case)
    kind, planned, past = _kind(case, request), case.planned(request), Estimate.read(PAST)
    rounds: list[Round] = []
    with Progress(case.name, [kind] * planned, estimate=past) as shown, heard_by(shown.at, told=shown.say):
        for each in case.rounds(request):
            rounds.append(each)
            shown.end(kind)
    past.write(PAST)
    fabric = (
        f"{case.fabric}, {file.file_system(request.directory or file.DIRECTORY)}"
        if "directory" in case.options
        else case.fabric
    )
    return CaseOutcome(case.name, fabric, tuple(rounds), case.wanted, missing)


def _kind(case: Case, request: CaseOptions) -> str:
    """Return what decides how long a round takes."""
    options = {"seconds": request.seconds, "packets": request.packets, "plain": request.plain or None}
    if case.planned(request) == 1:
        options["runs"] = request.runs
    return " ".join([case.name, *(f"{name}={value}" for name, value in options.items() if value is not None)])


def _figures(outcome: CaseOutcome) -> Table:
    table = Table(
        title=f"{outcome.case} ({outcome.fabric} fabric, median of {len(outcome.rounds)})", title_justify="left"
    )
    table.add_column("figure")
    for name in ("ours", *outcome.baselines):
        table.add_column(name, justify="right")
    for key, value in outcome.ours.items():
        others = (_shown(figures[key]) if key in figures else "" for figures in outcome.baselines.values())
        table.add_row(key, _shown(value), *others)
    return table


def _shown(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"
