"""A process of a Dask cluster on a lab: rank 0 the scheduler and the client, the others a worker each.

    python -m scripts.harness.dask_rank srd --megabytes 256

RANK, WORLD_SIZE and RANK_HOSTS as netns.launcher sets them. Rank 0 prints a line of JSON on stdout for each of the two
tasks: `rechunk`, an array of rows that becomes one of columns, and `shuffle`, a table whose rows are sorted into
partitions by a random key. Each begins with data that lies at the workers already. What comes out is compared with what
went in: a wrong sum is exit status 1.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
import tempfile
import time
from typing import Any, Final

import click
import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Client, Scheduler, Worker, wait
from distributed.comm import registry

from srd.dask.backend import SrdBackend

PORT: Final = 8786
PARTITIONS: Final = 16
COLUMNS: Final = 4
CONNECT_S: Final = "60s"


def rows_of(number: int, rows: int) -> Any:
    """Return a partition of the table: whole numbers, whose sums are exact."""
    random = np.random.default_rng(number)
    return pd.DataFrame({name: random.integers(0, 1 << 20, rows) for name in ("key", "a", "b", "c")})


async def timed(client: Any, what: Any) -> tuple[float, Any]:
    """Compute what stays at the workers; return how long it took."""
    began = time.perf_counter()
    done = client.persist(what)
    await wait(done)
    return time.perf_counter() - began, done


async def rechunk(client: Any, size_bytes: int) -> float:
    """Make columns of rows."""
    side = int((size_bytes / 8) ** 0.5) // PARTITIONS * PARTITIONS
    numbers = da.arange(side * side, chunks=side * side // PARTITIONS, dtype=np.float64)
    _, rows = await timed(client, numbers.reshape(side, side))
    seconds, columns = await timed(client, rows.rechunk((side, side // PARTITIONS)))
    sums = await client.compute(columns.sum(axis=0))
    first = np.arange(side, dtype=np.float64)
    if not np.array_equal(sums, side * first + side * np.float64(side) * (side - 1) / 2):
        sys.exit("wrong sum of a column")
    return seconds


async def shuffle(client: Any, size_bytes: int) -> float:
    """Bring rows of a key together."""
    rows = size_bytes // (8 * COLUMNS) // PARTITIONS
    meta = rows_of(0, 0)
    _, table = await timed(client, dd.from_map(rows_of, range(PARTITIONS), rows=rows, meta=meta))
    before = await client.compute(table.sum())
    seconds, shuffled = await timed(client, table.shuffle("key"))
    after = await client.compute(shuffled.sum())
    homes = shuffled.map_partitions(lambda part: pd.Series([part["key"].nunique()]), meta=("n", "int64"))
    distinct, spread = await client.compute(table["key"].nunique()), await client.compute(homes.sum())
    if not before.equals(after) or distinct != spread:
        sys.exit("a row was lost, or a key lies in two partitions")
    return seconds


async def lead(protocol: str, host: str, *, workers: int, size_bytes: int) -> None:
    """Be the scheduler, and measure."""
    async with (
        Scheduler(protocol=protocol, host=host, port=PORT, dashboard=False) as scheduler,
        Client(scheduler.address, asynchronous=True, timeout=CONNECT_S) as client,
    ):
        await client.wait_for_workers(workers, timeout=60)
        for name, work in (("rechunk", rechunk), ("shuffle", shuffle)):
            print(json.dumps({"event": name, "seconds": await work(client, size_bytes)}), flush=True)
        print(json.dumps({"event": "cpu", "seconds": time.process_time()}), flush=True)
        await client.shutdown()


async def follow(protocol: str, host: str, *, scheduler: str) -> None:
    """Be a worker until the scheduler ends."""
    with tempfile.TemporaryDirectory() as folder:
        async with Worker(
            f"{protocol}://{scheduler}:{PORT}", host=host, nthreads=1, memory_limit=None, local_directory=folder,
            dashboard=False,
        ) as worker:  # fmt: skip
            await worker.finished()


@click.command()
@click.argument("protocol", type=click.Choice(["srd", "tcp"]))
@click.option("--megabytes", default=256, show_default=True, help="Of the array, and of the table.")
def main(*, protocol: str, megabytes: int) -> None:
    """Take part in a cluster."""
    logging.getLogger("distributed").setLevel(logging.ERROR)
    registry.backends.setdefault("srd", SrdBackend())  # where the project is not installed
    rank, hosts = int(os.environ["RANK"]), os.environ["RANK_HOSTS"].split(",")
    with dask.config.set({"distributed.comm.timeouts.connect": CONNECT_S, "array.rechunk.method": "p2p"}):
        if rank == 0:
            asyncio.run(lead(protocol, hosts[0], workers=len(hosts) - 1, size_bytes=megabytes << 20))
        else:
            asyncio.run(follow(protocol, hosts[rank], scheduler=hosts[0]))


if __name__ == "__main__":
    main()
