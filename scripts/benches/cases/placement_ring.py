"""Placement, measured: how much faster an all-reduce is with its ranks close to each other, on a three-tier lab.

16 hosts of 100 Mbit/s in 4 blocks of 4 (example `cluster`: one block is a rack of 4, the others have two racks of
2), on the relay backend; 50 us to a host, 0.5 ms per link between leaf and aggregation switch, 2 ms per link above. The
hosts of a block have 50 Mbit/s together to the other blocks, over 2 aggregation switches and 2 spines: 8:1, the upper
end of what Al-Fares et al. (SIGCOMM 2008) give for data centres, and about what Meta's clusters for Llama 3 have above
their pods, 7:1 (arXiv 2407.21783, section 3.3.1). Racks are 2:1 at most.

A ring all-reduce of 8 MiB (srd/examples/allreduce.py) over 4 ranks, one per host, with three placements:
`required`: in one rack (layer 3). `preferred`: in one rack if possible, while one host of the rack of 4 is taken; the
next best is a block, with 2 ranks per rack. `bad`: one rank in each block, as placed by a scheduler that ignores the
network.

The core makes the difference. The ring is pipelined, so it is as fast as its slowest link, and between blocks that is a
block's share of an oversubscribed core; 6 steps of a longer RTT add little. In a large cluster many jobs share a fast
core with the same effect; here one job uses a slow core.

There are two predicted ratios beside the measured one. `predicted_hops_ratio`: links around the ring, 6 to 2 per step.
`predicted_model_ratio`: the alpha-beta model of the same topology, 2(N-1) steps of the longest delay and 2(N-1)/N of
the tensor at the lowest rate.

An iteration's time is that of the slowest rank. Four ranks of 100 Mbit/s and the relay load two cores, so other load on
the machine adds to the times. Therefore each placement runs twice per round, alternating with the others, and its time
is that of its fastest iteration. The medians are reported, too.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median
from typing import Final

from netns.errors import LabError
from netns.examples import file_named
from netns.inventory.fabric_layers import nodes_of
from netns.inventory.layers import level_named
from netns.lab.lab import Lab
from netns.placement import Job, place
from netns.placement.job import JobTopology
from netns.placement.model import Usage
from netns.signals import signals_raise
from netns.topology.file import read_topology
from netns.topology.model import Topology
from netns.topology.routing import delay_and_rate
from scripts.benches.outcome import Figures, Wanted
from scripts.harness.drops import require_no_relay_drops
from scripts.harness.errors import BenchError
from scripts.harness.ranks import heard, ranks

WANTED: Final = (Wanted("bad_over_required_ratio", ">", 1.5),)

PROGRAM: Final = "srd.examples.allreduce"
RANKS: Final = 4
TENSOR_BYTES: Final = 8 << 20
ITERATIONS: Final = 3
VISITS: Final = 2
DELAY_TARGET: Final = "4ms"
"""Several full packets even on the slow links; SRD's default of 1 ms is little more than one packet there."""
TIMEOUT_S: Final = 300.0
PLACEMENTS: Final = ("required", "preferred", "bad")


@dataclass(frozen=True, slots=True)
class RingSize:
    tensor_bytes: int = TENSOR_BYTES
    iterations: int = ITERATIONS
    """Iterations of each run."""


def measure(seed: int, *, size: RingSize) -> Figures:
    """Make one round: all three placements in one lab, whose ECMP and order of placements depend on `seed`."""
    topology = replace(read_topology(file_named("cluster")), name=f"placement-{os.getpid()}", seed=seed)
    hosts = placements(topology)
    turn = seed % len(PLACEMENTS)
    try:
        with signals_raise(), Lab.up(topology, backend="relay") as lab:
            seconds: dict[str, list[float]] = {name: [] for name in PLACEMENTS}
            for name in (PLACEMENTS[turn:] + PLACEMENTS[:turn]) * VISITS:
                seconds[name] += _iterations_s(lab, hosts=hosts[name], size=size)
            require_no_relay_drops(lab)
            late_us = (lab.relay_status() or {})["late_mean_us"]
    except LabError as error:
        raise BenchError(str(error)) from None
    found = figures(topology, hosts=hosts, seconds=seconds, tensor_bytes=size.tensor_bytes)
    return found | {"relay_late_mean_us": late_us}


def figures(
    topology: Topology, *, hosts: Mapping[str, Sequence[str]], seconds: Mapping[str, Sequence[float]], tensor_bytes: int
) -> dict[str, float]:
    fastest_s = {name: min(seconds[name]) for name in PLACEMENTS}
    links = {name: sum(ring_links(topology, hosts=hosts[name])) for name in PLACEMENTS}
    model_s = {name: modelled_s(topology, hosts=hosts[name], tensor_bytes=tensor_bytes) for name in PLACEMENTS}
    return {
        "bad_over_required_ratio": fastest_s["bad"] / fastest_s["required"],
        "preferred_over_required_ratio": fastest_s["preferred"] / fastest_s["required"],
        "predicted_hops_ratio": links["bad"] / links["required"],
        "predicted_model_ratio": model_s["bad"] / model_s["required"],
        **{f"{name}_iteration_s": fastest_s[name] for name in PLACEMENTS},
        **{f"{name}_median_s": median(seconds[name]) for name in PLACEMENTS},
        **{f"{name}_model_s": model_s[name] for name in PLACEMENTS},
        **{f"{name}_links": links[name] for name in PLACEMENTS},
    }


def placements(topology: Topology) -> dict[str, tuple[str, ...]]:
    nodes = nodes_of(topology)
    job = Job(name="allreduce", ranks=RANKS, command=("true",), topology=JobTopology(required=level_named(3)))
    near = place(job, nodes).hosts
    preferring = job.model_copy(update={"topology": JobTopology(preferred=level_named(3))})
    next_best = place(preferring, nodes, usage=[Usage({}, node=near[0])]).hosts
    blocks = {node.labels[level_named(2)]: node.name for node in reversed(nodes)}
    return {"required": near, "preferred": next_best, "bad": tuple(reversed(blocks.values()))}


def ring_links(topology: Topology, *, hosts: Sequence[str]) -> list[int]:
    """Return the number of links to the next rank, by rank."""
    return [topology.distances(after)[host] for host, after in _ring(hosts)]


def modelled_s(topology: Topology, *, hosts: Sequence[str], tensor_bytes: int) -> float:
    """Return the time of the alpha-beta model, which holds if no two pairs of neighbours share a link, as here."""
    paths = [delay_and_rate(topology, host, after) for host, after in _ring(hosts)]
    steps = 2 * (len(hosts) - 1)
    longest_s, lowest_bps = max(delay for delay, _ in paths), min(rate for _, rate in paths)
    return steps * longest_s + steps / len(hosts) * tensor_bytes * 8 / lowest_bps


def _ring(hosts: Sequence[str]) -> list[tuple[str, str]]:
    return list(pairwise((*hosts, hosts[0])))


def _iterations_s(lab: Lab, *, hosts: Sequence[str], size: RingSize) -> list[float]:
    sizes = ["--bytes", str(size.tensor_bytes), "--iterations", str(size.iterations)]
    with ranks(lab, hosts, PROGRAM, *sizes, "--delay-target", DELAY_TARGET) as job:
        job.wait(on_line=heard(), timeout_s=TIMEOUT_S)  # a wrong sum shows in the exit status
        strays = [str(rank) for rank in job.ranks if rank.ran_in != rank.host]
        iterations_s = job.iterations_s
    if strays:
        raise BenchError(f"not in the namespace of their host: {', '.join(strays)}")
    if len(iterations_s) != size.iterations:
        raise BenchError(f"{len(iterations_s)} of {size.iterations} iterations were reported by all ranks")
    return iterations_s
