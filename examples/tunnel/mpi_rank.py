"""One rank of mpi.py: the latency of an all-reduce and of an all-to-all, in the manner of OSU's micro-benchmarks.

A size is that of the vector that is reduced, or of what each rank sends to each. The latency is the mean of `CALLS`
after `WARM_UP` more; then the mean over the ranks. Every call has other values, and its result is checked, outside of
the time. Rank 0 prints a line of JSON for each collective and size.

    mpirun ... python3 mpi_rank.py CALLS SIZE...
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

COMM = MPI.COMM_WORLD
RANK, RANKS = COMM.Get_rank(), COMM.Get_size()
WARM_UP = 2

Vector = npt.NDArray[np.int64]
Collective = Callable[[Vector, Vector], Any]


def values(sender: int, *, receiver: int, call: int, count: int) -> Vector:
    """Return what a rank sends to another in a call."""
    return np.arange(count) * (call + 1) + 1000 * sender + receiver


def reduced(call: int, *, count: int) -> tuple[Vector, Vector]:
    """Return what this rank gives to an all-reduce, and what comes back."""
    given = [values(rank, receiver=0, call=call, count=count) for rank in range(RANKS)]
    return given[RANK], np.sum(given, axis=0)


def exchanged(call: int, *, count: int) -> tuple[Vector, Vector]:
    """Return what this rank gives to an all-to-all, and what comes back."""
    given = [values(RANK, receiver=rank, call=call, count=count) for rank in range(RANKS)]
    wanted = [values(rank, receiver=RANK, call=call, count=count) for rank in range(RANKS)]
    return np.concatenate(given), np.concatenate(wanted)


COLLECTIVES: dict[str, tuple[Collective, Callable[..., tuple[Vector, Vector]]]] = {
    "all-reduce": (partial(COMM.Allreduce, op=MPI.SUM), reduced),
    "all-to-all": (COMM.Alltoall, exchanged),
}


def measure(name: str, *, size_bytes: int, calls: int) -> dict[str, Any]:
    """Make the calls; return the latency and the number of wrong results, of all ranks."""
    collective, vectors = COLLECTIVES[name]
    seconds, wrong = 0.0, 0
    for call in range(-WARM_UP, calls):
        given, wanted = vectors(call, count=size_bytes // 8)
        found = np.full_like(wanted, -1)
        COMM.Barrier()
        began_at = time.perf_counter()
        collective(given, found)
        seconds += (time.perf_counter() - began_at) * (call >= 0)
        wrong += not np.array_equal(found, wanted)
    return {
        "collective": name,
        "bytes": size_bytes,
        "calls": calls,
        "latency_us": COMM.allreduce(1e6 * seconds / calls) / RANKS,
        "wrong": COMM.allreduce(wrong),
    }


def main() -> None:
    """Measure each collective with each size."""
    calls, *sizes = (int(argument) for argument in sys.argv[1:])
    for name in COLLECTIVES:
        for size_bytes in sizes:
            found = measure(name, size_bytes=size_bytes, calls=calls)
            if RANK == 0:
                print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
