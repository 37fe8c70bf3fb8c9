"""examples.tunnel: each example, shortened, with its own checks of what arrived."""

from __future__ import annotations

import pytest

from examples.tunnel import iperf3, mpi, postgres, redis_benchmark, rsync_ssh, web
from tests.examples.tunnel.conftest import Network

pytestmark = pytest.mark.root


def test_iperf3(network: Network) -> None:
    rows = iperf3.run(network.pair, seconds=1)
    assert [row["test"] for row in rows] == list(iperf3.TESTS)


@pytest.mark.long
def test_web(network: Network) -> None:
    rows = web.run(network.pair, objects=200)
    assert [row["objects"] for row in rows] == [200, 200]


@pytest.mark.long
def test_rsync_ssh(network: Network) -> None:
    rows = rsync_ssh.run(network.pair, files=5, total_bytes=5_000_000)
    assert len(rows) == 2


@pytest.mark.long
def test_redis_benchmark(network: Network) -> None:
    rows = redis_benchmark.run(network.pair, requests=3200, large_bytes=1_000_000)
    assert [row["command"] for row in rows] == ["SET", "GET"] * 2


@pytest.mark.long
def test_postgres(network: Network) -> None:
    rows = postgres.run(network.pair, transactions=80, rows=20_000)
    assert [row["count"] for row in rows] == [80, 20_000, 20_000]


@pytest.mark.long
def test_mpi(network: Network) -> None:
    rows = mpi.run(network.pair, sizes=(8, 65_536), calls=5)
    assert [row["collective"] for row in rows] == ["all-reduce"] * 2 + ["all-to-all"] * 2
