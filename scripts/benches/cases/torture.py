"""Torture: real endpoints in real processes, everything randomised by seed, and every byte checked.

A scenario (torture/scenario.py) is 2 to 5 processes that send to one, over loopback, namespaces around a router with
an MTU for each link, or two leaves and two spines that drop, delay, duplicate, reorder and corrupt packets. They issue
sends, batches, writes and reads of 0 bytes to 1 GiB, some of them cancelled, invalid, or from memory that is
deregistered. There are slow readers, bound queues, held messages and full pools; processes that are killed, stopped and
restarted; links that change their MTU, flap and drop silently; attackers that send every kind of packet, alone and in
trains; numbers and clocks that start just before they wrap; the compiled package and the sources, uvloop and asyncio.
Scenarios of some seconds follow each other until the time is up, each with its own seed.

`wrong_bytes`: wrong bytes in messages, in written and read memory and around it, and in files. `disagreements`: a
request that completed with OK and was not delivered exactly once, a delivery that was never posted, and the like
(torture/reconcile.py). `hangs`: requests, calls and processes that did not end in time. `tracebacks`: processes with a
traceback or a warning on stderr, or that died. `leaked_bytes`: growth of a process's anonymous memory beyond PEAK_BYTES
while it works, and beyond GROWTH_BYTES when everything is closed (torture/run.py), and regions still mapped then.
`requests`: requests of all scenarios.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click

from scripts.benches import campaign
from scripts.benches.case import CaseOptions
from scripts.benches.outcome import Round, Wanted
from scripts.benches.torture.result import TortureResult
from scripts.benches.torture.run import run_scenario
from scripts.benches.torture.scenario import GIANT_NEEDS_BYTES, Capabilities, scenario
from scripts.installed import ROOT, STAMP, digest

WANTED: Final = (
    Wanted("wrong_bytes", "<=", 0),
    Wanted("disagreements", "<=", 0),
    Wanted("hangs", "<=", 0),
    Wanted("tracebacks", "<=", 0),
    Wanted("leaked_bytes", "<=", 0),
    Wanted("leaked_descriptors", "<=", 0),
    Wanted("requests", ">=", 100),
)
SECONDS: Final = 60.0
SCENARIO_S: Final = 3.0
"""Duration of the traffic in each scenario; starting, draining and comparing take about as long again."""


def capabilities() -> Capabilities:
    """Return the resources and privileges that scenarios have on this machine."""
    root = os.geteuid() == 0
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGESIZE")
    return Capabilities(namespaces=root, compiled=_is_compiled(), giant=free > GIANT_NEEDS_BYTES)


def _is_compiled() -> bool:
    """Whether the installed package is this checkout, compiled."""
    installed = STAMP.exists() and STAMP.read_text(encoding="ascii") == digest()
    return installed and any(Path(ROOT, ".venv", "lib").glob("python*/site-packages/srd/proto/endpoint/peer.*.so"))


def rounds(request: CaseOptions) -> Iterator[Round]:
    """Make one round: scenarios until the time is up, or so many runs; the seed is that of the first one."""
    first = random.SystemRandom().randrange(1 << 31) if request.seed is None else request.seed
    available, results = capabilities(), list[TortureResult]()
    for seed in campaign.seeds(first, runs=request.runs, seconds=request.seconds or SECONDS):
        what = scenario(seed, capabilities=available, seconds=SCENARIO_S)
        click.echo(f"seed {seed}: {what.describe()}", err=True)
        results.append(run_scenario(what))
        campaign.complain(results[-1].faults, command=f"torture --runs 1 --seed {seed}")
    yield Round(first, _figures(results))


def _figures(results: list[TortureResult]) -> dict[str, float]:
    return {
        "wrong_bytes": sum(len(each.wrong) for each in results),
        "disagreements": sum(len(each.disagreements) for each in results),
        "hangs": sum(len(each.hangs) for each in results),
        "tracebacks": sum(len(each.tracebacks) for each in results),
        "leaked_bytes": sum(each.leaked_bytes for each in results),
        "leaked_descriptors": sum(each.leaked_descriptors for each in results),
        "scenarios": len(results),
        "requests": sum(each.requests for each in results),
        "posted_mb": sum(each.posted_bytes for each in results) / 1e6,
    }
