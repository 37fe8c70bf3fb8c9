"""Chaos: seeded runs with all kinds of faults, each checked against the protocol's guarantees.

In a run two hosts send, write and read 10 to 40 messages of 0 to 100 kB with real bytes. The scenario is drawn from the
seed (chaos/scenario.py): loss up to 30 %, jitter, duplicates, late datagrams, flipped bits, tiny queues, spines that
fail and are repaired, processes that restart, small credit, memory for few packets, slow release, cancelled requests,
wrong keys and ranges, deregistered keys. The invariants (chaos/run.py): each message is delivered once with the right
bytes to the right address, or its sender gets an error; no other memory is written; nothing hangs; the core raises no
exception.

`violations` counts the violated invariants; each seed with one is printed with the command that replays it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import click

from scripts.benches.case import Request
from scripts.benches.chaos.run import Report, run_scenario
from scripts.benches.outcome import Round
from scripts.harness.steps import steps

RUNS: Final = 300
SHOWN: Final = 5
"""Maximum of printed violations per seed."""


def measure(request: Request) -> Iterator[Round]:
    """Make all runs, as one round; a single one if a seed is given, but for more that are asked for."""
    first, runs = (1, request.runs or RUNS) if request.seed is None else (request.seed, request.runs or 1)
    reports = []
    for seed in steps(range(first, first + runs), "scenario"):
        report = run_scenario(seed)
        if report.violations:
            _print_violations(report)
        reports.append(report)
    yield Round(
        first,
        {
            "violations": sum(len(report.violations) for report in reports),
            "runs": len(reports),
            "messages": sum(report.posted for report in reports),
            "delivered": sum(report.delivered for report in reports),
            "placed": sum(report.placed for report in reports),
            "failed_requests": sum(report.failed for report in reports),
            "damaged_datagrams": sum(report.damaged for report in reports),
            "restarts": sum(report.restarts for report in reports),
        },
    )


def _print_violations(report: Report) -> None:
    click.echo(f"seed {report.seed}: replay with: scripts/bench chaos --seed {report.seed}", err=True)
    for violation in report.violations[:SHOWN]:
        click.echo(f"    {violation}", err=True)
