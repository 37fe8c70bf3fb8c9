"""srd.dask: an unmodified LocalCluster, whose scheduler, nannies and workers are processes that find `srd://` alone."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import numpy as np
import pytest

distributed = pytest.importorskip("distributed", reason="distributed is not installed: make test-torch")

import dask.array as da  # noqa: E402
from distributed.comm import registry  # noqa: E402
from distributed.security import Security  # noqa: E402

from srd.dask.backend import SrdBackend  # noqa: E402
from tests.patience import PATIENCE_S  # noqa: E402

GROUP = "distributed.comm.backends"


@pytest.fixture(autouse=True)
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The entry point, for the processes that are started, too, where the project is not installed."""
    if entry_points(group=GROUP, name="srd"):
        yield
        return
    info = tmp_path / "srd_entry-0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: srd-entry\nVersion: 0\n")
    (info / "entry_points.txt").write_text(f"[{GROUP}]\nsrd = srd.dask.backend:SrdBackend\n")
    monkeypatch.syspath_prepend(str(tmp_path))  # which spawned processes have, too
    registry.backends["srd"] = SrdBackend()
    yield
    del registry.backends["srd"]


@pytest.fixture
def client() -> Iterator[Any]:
    with (
        distributed.LocalCluster(
            protocol="srd", n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster) as made,
    ):
        yield made


def test_processes__with_nannies_move_arrays_and_outlive_a_worker(client: Any) -> None:
    workers = client.scheduler_info()["workers"]
    first, second = workers
    processes = client.run(os.getpid)
    assert len({*processes.values(), os.getpid()}) == 3, "each worker is a process"
    for address, worker in workers.items():
        assert address.startswith("srd://")
        assert worker["nanny"].startswith("srd://")
        assert worker["nanny"] != address
    array = client.submit(np.arange, 3_000_001, workers=[first])
    copy = client.submit(np.array, array, workers=[second])
    assert np.array_equal(copy.result(), np.arange(3_000_001))

    os.kill(processes[first], signal.SIGKILL)
    still_there = client.submit(os.getpid, workers=[second], pure=False).result(PATIENCE_S)
    assert still_there == processes[second], "the other worker goes on"
    until_at = time.monotonic() + PATIENCE_S
    while not (restarted := set(client.run_on_scheduler(addresses)) - {first, second}):
        assert time.monotonic() < until_at, "the nanny has started no other worker"
    assert client.submit(os.getpid, workers=list(restarted), pure=False).result(PATIENCE_S) not in processes.values()


def addresses(dask_scheduler: Any) -> list[str]:
    return list(dask_scheduler.workers)


def test_rechunk__moves_every_block_between_processes(client: Any) -> None:
    size = 2_000
    given = np.arange(size * size, dtype=np.float64).reshape(size, size)
    rows = da.arange(size * size, dtype=np.float64, chunks=100 * size).reshape(size, size).persist()
    columns = rows.rechunk((size, 100)).persist()
    sums = client.compute(columns.sum(axis=0)).result()
    assert np.array_equal(sums, given.sum(axis=0))
    assert np.array_equal(columns[:, 700].compute(), given[:, 700])


def test_certificates__are_refused_in_a_line() -> None:
    with pytest.raises(
        RuntimeError, match=r"^srd has no TLS: leave the certificates out, and name a key in "
    ) as caught:
        SrdBackend().get_listener(
            "127.0.0.1", None, deserialize=True, **Security.temporary().get_listen_args("scheduler")
        )
    assert "\n" not in str(caught.value)
