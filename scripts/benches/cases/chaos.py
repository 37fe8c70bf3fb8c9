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

from scripts.benches import campaign
from scripts.benches.case import CaseOptions
from scripts.benches.chaos.run import run_scenario
from scripts.benches.outcome import Round

RUNS: Final = 300


def measure(request: CaseOptions) -> Iterator[Round]:
    """Make all runs, as one round; a single one if a seed is given, but for more that are asked for."""
    first, reports = 1 if request.seed is None else request.seed, []
    for seed in campaign.seeds(first, runs=campaign.planned(request, runs=RUNS)):
        reports.append(run_scenario(seed))
        campaign.complain((("violation", each) for each in reports[-1].violations), command=f"chaos --seed {seed}")
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
