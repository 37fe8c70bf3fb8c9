#!/usr/bin/env python3
"""scripts/check_weight.py [--record]: fail if a small message or a peer has become heavier than recorded.

`make test` runs it with the installed package, compiled, in some seconds and without root. Processor time is that of a
small message over that of asyncio's streams in the same run (scripts/bench path), so that one limit holds on busy and
idle machines. On another kind of processor the ratio is another one, as the kernel's share is: 6 on an AMD EPYC, 15 on
an Intel Xeon. Memory is that of a peer (scripts/bench peers, with fewer peers). scripts/weights.json has what was
recorded on each kind, when, and of which revision; `--record` measures several times, and writes this machine's. Where
nobody has recorded, the ratios are printed, and memory alone is compared.

Exit status: 0: nothing is heavier; 1: something is, or could not be measured: a line each; 2: wrong usage.
"""

from __future__ import annotations

import datetime as dt
import json
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
    from scripts.installed import start

    start("scripts/check_weight.py")

import click

from netns.base.build import BUILD
from scripts.benches.cases import path, peers
from scripts.benches.outcome import Figures
from scripts.harness.environment import environment
from scripts.harness.errors import BenchError
from scripts.harness.two_hosts import Here

RECORDED: Final = Path(__file__).with_name("weights.json")
GROWTH: Final[Mapping[str, float]] = {"cpu_ratio_64b": 1.5, "cpu_ratio_64b_secure": 1.5, "bytes_per_peer": 1.05}
"""The figures, and the factor by which each may exceed what was recorded. Ratios of processor time vary by some
percent between runs, and more between processors. The memory of a peer varies by less than one percent, and once grew
by a quarter unseen, so its factor is smaller."""
MEMORY: Final = "bytes_per_peer"
PAIRS: Final = 3
ROUNDS: Final = 2
SECONDS: Final = 0.15
"""Pairs of processes that run `path`, rounds of each, and seconds of a turn. One pair in twelve takes a third less time
for our messages, from the first to the last one, so that the median is over several."""
RECORDED_RUNS: Final = 5
"""Runs whose medians are recorded."""
PEERS: Final = 500
"""Peers of `peers`: the bytes of each differ by 0.1 % from those with 10,000, in 1.5 s instead of 14. They differ
more just above the numbers at which a dictionary of all peers grows: by 1.5 % with 700."""


def measure() -> dict[str, float]:
    rounds = [each for _ in range(PAIRS) for each in path.messages(ROUNDS, SECONDS, workloads=["64b"])]
    ratios = {name: median(each.ours[name] for each in rounds) for name in GROWTH if name in rounds[0].ours}
    return {**ratios, "bytes_per_peer": peers.bytes_per_peer(Here(), PEERS)}


def recorded_here() -> tuple[str, Mapping[str, Any] | None, Mapping[str, Any]]:
    """Return this kind of machine, what was recorded on it, and what else was: memory is the same everywhere."""
    records: dict[str, Any] = json.loads(RECORDED.read_text(encoding="utf-8"))
    machine = str(environment()["machine"])
    own = records.get(machine)
    return machine, own, own or next(iter(records.values()))


def complaints(measured: Figures, recorded: Mapping[str, Any], names: Collection[str]) -> Iterator[str]:
    for name in names:
        was, growth = recorded["figures"][name], GROWTH[name]
        if not measured[name] <= was * growth:
            yield (
                f"{name}: measured {measured[name]:.4g}, limit {was * growth:.4g}, {growth:g} times the {was:.4g} "
                f"recorded {recorded['date']} of {recorded['revision']} with Python {recorded['python']}; "
                "repeat with: scripts/check_weight.py"
            )


def record(runs: Sequence[Figures]) -> None:
    """Write the medians of some runs on this kind of machine, with date, revision and environment."""
    here = {name: environment()[name] for name in ("revision", "kernel", "python")}
    figures = {name: float(f"{median(run[name] for run in runs):.4g}") for name in GROWTH}
    records = json.loads(RECORDED.read_text(encoding="utf-8"))
    records[environment()["machine"]] = {"date": f"{dt.datetime.now(dt.UTC):%Y-%m-%d}", **here, "figures": figures}
    RECORDED.write_text(json.dumps(records, indent=2) + "\n", encoding="utf-8")


@click.command()
@click.option("--record", "is_new", is_flag=True, help=f"Write what is measured to scripts/{RECORDED.name}.")
def main(*, is_new: bool) -> None:
    """Fail if a small message or a peer has become heavier than recorded."""
    if BUILD != "compiled":
        sys.exit(
            "scripts/check_weight.py: only a compiled build can be compared with what was recorded; run make setup"
        )
    try:
        if is_new:
            record([measure() for _ in range(RECORDED_RUNS)])
        machine, own, recorded = recorded_here()
        names = GROWTH if own is not None else (MEMORY,)
        measured = measure()
        if any(complaints(measured, recorded, names)):  # a busy machine adds to it, and seldom twice
            again = measure()
            measured = {name: min(value, again[name]) for name, value in measured.items()}
    except BenchError as error:
        sys.exit(f"scripts/check_weight.py: {error}")
    for name, value in measured.items():
        was = f"recorded {recorded['figures'][name]:.4g}" if name in names else f"nothing recorded on {machine}"
        click.echo(f"{name} {value:.4g} ({was})")
    heavier = list(complaints(measured, recorded, names))
    for line in heavier:
        click.echo(f"heavier: {line}", err=True)
    sys.exit(1 if heavier else 0)


if __name__ == "__main__":
    main()
