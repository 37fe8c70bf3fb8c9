"""Scale: SRD's cores on 1,024 hosts in a three-tier Clos, as many packet hops as are asked for, on two cores.

Two processes, each with a permutation of its own seed on all 1,024 hosts of `clos1024` (srd/sim/experiments/fabrics):
two cells of a sweep, which is how experiments use several cores. One simulation is one process, as events that are
nanoseconds apart would otherwise wait for each other. Messages are as long as the hops need (`--packets`, of both
together; 10^8 are some ten minutes, by default it is a tenth of that).

`hops_per_wall_second`: of both, over the time from the start to the end of the slower, with what it takes to build the
fabric and to open connections; 10^8 in ten minutes are 166,667. `hops_per_core_second`: over the processor time of the
slower. `memory_mb`: the largest memory of both together. All flows must be complete. It is a program, and no scenario's
file, as it measures processes: each of them runs what `srd sim clos1024 --workload permutation:SIZE` does.
"""

from __future__ import annotations

import multiprocessing
import os
import resource
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from time import perf_counter, process_time
from typing import Final, NamedTuple

from netns.programs import end_with
from scripts.benches.case import CaseOptions
from scripts.benches.outcome import Round, wanted
from scripts.harness.errors import BenchError
from srd.sim.experiments.experiment import experiment_of, run
from srd.sim.experiments.fabric import read_fabric

WANTED: Final = wanted("hops_per_core_second >= 83000")
FABRIC: Final = "clos1024"
PROCESSES: Final = 2
HOPS: Final = 10_000_000
HOPS_PER_BYTE: Final = 0.9
"""Of a flow of each host, at least: 1,024 flows, 8,916 bytes a packet, six links, and acks."""


class Ran(NamedTuple):
    hops: int
    processor_s: float
    memory_bytes: int


def rounds(request: CaseOptions) -> Iterator[Round]:
    first, size_bytes = request.seed or 1, int((request.packets or HOPS) / PROCESSES / HOPS_PER_BYTE)
    context = multiprocessing.get_context("fork")  # nothing here has threads yet
    began_s = perf_counter()
    with ProcessPoolExecutor(PROCESSES, mp_context=context, initializer=end_with, initargs=(os.getpid(),)) as pool:
        try:
            ran = list(pool.map(simulate, [size_bytes] * PROCESSES, range(first, first + PROCESSES)))
        except BrokenProcessPool:
            raise BenchError("a process was ended while it simulated; was there memory for both?") from None
    wall_s = perf_counter() - began_s
    yield Round(
        first,
        {
            "hops_per_core_second": min(each.hops / each.processor_s for each in ran),
            "hops_per_wall_second": sum(each.hops for each in ran) / wall_s,
            "hops": sum(each.hops for each in ran),
            "wall_s": wall_s,
            "memory_mb": sum(each.memory_bytes for each in ran) / 1e6,
        },
    )


def simulate(size_bytes: int, seed: int) -> Ran:
    """Play one permutation. Raises BenchError if not every flow is complete."""
    began_s = process_time()
    result = run(experiment_of(read_fabric(FABRIC), workload=f"permutation:{size_bytes}", seed=seed))
    left = sum(each.fct_us is None for each in result.completions)
    if left or result.failures:
        raise BenchError(f"seed {seed}: {left} flows were not complete; {'; '.join(result.failures[:1])}")
    memory_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    return Ran(result.packet_hops, process_time() - began_s, memory_bytes)
