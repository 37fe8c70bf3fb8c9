"""examples.tunnel: each example, shortened, with its own checks of what arrived."""

from __future__ import annotations

import pytest

from examples.tunnel import iperf3, mpi, postgres, redis_benchmark, rsync_ssh, web
from tests.examples.tunnel.conftest import Network

pytestmark = pytest.mark.root


def test_iperf3(network: Network) -> None:
    rows = iperf3.run(network.server, network.client, network.address, seconds=1)
    assert [row["test"] for row in rows] == list(iperf3.TESTS)


def test_web(network: Network) -> None:
    rows = web.run(network.server, network.client, network.address, objects=200)
    assert [row["objects"] for row in rows] == [200, 200]


def test_rsync_ssh(network: Network) -> None:
    rows = rsync_ssh.run(network.server, network.client, network.address, files=5, total_bytes=5_000_000)
    assert len(rows) == 2


def test_redis_benchmark(network: Network) -> None:
    rows = redis_benchmark.run(network.server, network.client, network.address, requests=3200, large_bytes=1_000_000)
    assert [row["command"] for row in rows] == ["SET", "GET"] * 2


def test_postgres(network: Network) -> None:
    rows = postgres.run(network.server, network.client, network.address, seconds=1, rows=20_000)
    assert [row["count"] for row in rows[1:]] == [20_000, 20_000]


def test_mpi(network: Network) -> None:
    rows = mpi.run(network.server, network.client, network.address, sizes=(8, 65_536), calls=5)
    assert [row["collective"] for row in rows] == ["all-reduce"] * 2 + ["all-to-all"] * 2
