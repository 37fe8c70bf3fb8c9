"""examples.tunnel: what the examples refuse, each a result that is wrong."""

from __future__ import annotations

import pytest

from examples.tunnel import iperf3, mpi, postgres, redis_benchmark, web
from examples.tunnel.hosts import HERE, ExampleError


def test_iperf3__bytes_that_did_not_arrive() -> None:
    end = {"sum_sent": {"bytes": 1 << 30}, "sum_received": {"bytes": 1 << 20, "bits_per_second": 1e6}}
    with pytest.raises(ExampleError, match="1048576 of 1073741824 bytes arrived"):
        iperf3._tcp("TCP", end)


def test_iperf3__no_datagram_arrived() -> None:
    end = {"sum": {"packets": 10, "lost_percent": 100, "bits_per_second": 1e6}}
    with pytest.raises(ExampleError, match="UDP: nothing arrived"):
        iperf3._udp("UDP", end)


def test_web__an_object_that_differs() -> None:
    digests = "aa  ./0\nbb  ./1\ncc  ./2\n"
    assert web._differing(digests, digests) == 0
    assert web._differing("aa  ./0\nbx  ./1\n", digests) == 2


def test_redis__counts_of_the_server() -> None:
    stats = "# Commandstats\r\ncmdstat_set:calls=3201,usec=9,usec_per_call=1\r\ncmdstat_config|get:calls=1,usec=2\r\n"
    assert redis_benchmark._calls(stats)["set"] == 3201


def test_postgres__a_report_that_lacks_something() -> None:
    assert postgres._found(r"tps = ([\d.]+)", "tps = 198.2 (without initial connection time)") == "198.2"
    with pytest.raises(ExampleError, match="its report lacks"):
        postgres._found(r"tps = ([\d.]+)", "pgbench: error")


def test_mpi__results_that_are_wrong_or_missing() -> None:
    right: dict[str, float | str] = {
        "collective": "all-reduce",
        "bytes": 8,
        "calls": 5,
        "latency_us": 100.0,
        "wrong": 0,
    }
    wanted = {"collective": "all-reduce", "bytes": 8, "latency_us": 100.0}
    assert mpi._rows([right, right], sizes=(8,)) == [wanted, wanted]
    with pytest.raises(ExampleError, match="1 of 2 measurements ended"):
        mpi._rows([right], sizes=(8,))
    with pytest.raises(ExampleError, match="2 results of all-reduce of 8 bytes are wrong"):
        mpi._rows([right, right | {"wrong": 2}], sizes=(8,))


def test_mpi__its_network_is_the_interface_towards_the_other_host() -> None:
    assert mpi.route_towards(HERE, "127.0.0.1") == ("127.0.0.1", "127.0.0.0/8")
