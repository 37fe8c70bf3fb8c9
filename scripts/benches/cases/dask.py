"""Dask over SRD on a fabric that loses packets, beside Dask over TCP: an array is rechunked, and a table is shuffled.

A scheduler and a worker on one host of the demo's fabric, a worker on the other; four spines of 250 Mbit/s, of which
each link loses 1 %. The array and the table have 256 MiB each, of which about half passes the fabric. Both protocols
are in plain text, Dask's default, and take turns; TCP with cubic, Linux's default.

`lossy_over_tcp_ratio`: TCP's time over ours, of both tasks together; `rechunk_over_tcp_ratio` and
`shuffle_over_tcp_ratio`: of each. Workers, scheduler and relay share the machine's cores, so other load adds to all
times.
"""

from __future__ import annotations

import os
from functools import partial
from typing import Final

from netns.lab.lab import Lab
from netns.topology.model import reference
from scripts.benches.outcome import Round, Wanted, in_turn
from scripts.harness.client_server import Event
from scripts.harness.congestion import set_algorithm
from scripts.harness.needs import EVERYTHING, Need, lacks_library
from scripts.harness.ranks import heard, ranks
from srd.compare.fabric import conditioned
from srd.compare.grid import Condition
from srd.perf.tcp_socket import CUBIC

WANTED: Final = (Wanted("lossy_over_tcp_ratio", ">", 1, over="median"),)
NEEDS: Final = tuple(
    Need(name, EVERYTHING, partial(lacks_library, extra="dask")) for name in ("distributed", "pandas", "pyarrow")
)
SECONDS: Final = 0.0

PROTOCOLS: Final = ("srd", "tcp")
TASKS: Final = ("rechunk", "shuffle")
MEGABYTES: Final = 256
LIMIT_S: Final = 300.0


def measure(number: int, _seconds: float) -> Round:
    topology = conditioned(reference(), Condition({"loss": "1%"}), name=f"bench-dask-{os.getpid()}", seed=1)
    found: dict[str, dict[str, float]] = {}
    for protocol in in_turn(PROTOCOLS, number=number):
        with Lab.up(topology) as lab:
            set_algorithm(lab, lab.topology.hosts, name=CUBIC)
            found[protocol] = cluster_s(lab, protocol)
    ours, tcp = found["srd"], found["tcp"]
    ratios = {f"{task}_over_tcp_ratio": tcp[f"{task}_s"] / ours[f"{task}_s"] for task in TASKS}
    both = sum(tcp[f"{task}_s"] for task in TASKS) / sum(ours[f"{task}_s"] for task in TASKS)
    return Round(number, ours | ratios | {"lossy_over_tcp_ratio": both}, {"tcp": tcp})


def cluster_s(lab: Lab, protocol: str) -> dict[str, float]:
    first, second = lab.topology.hosts[:2]
    found: dict[str, float] = {}

    def note(event: Event) -> None:
        found[f"{event['event']}_s"] = event["seconds"]

    hosts = [first, first, second]
    with ranks(lab, hosts, "scripts.harness.dask_rank", protocol, "--megabytes", str(MEGABYTES)) as job:
        job.wait(on_line=heard(note), timeout_s=LIMIT_S)
    return found
