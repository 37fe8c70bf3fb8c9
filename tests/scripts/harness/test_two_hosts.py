"""scripts.harness.two_hosts and workers: two ends that reach each other, and nothing left behind."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from netns.lab.builder import exists
from scripts.benches.cases import latency
from scripts.benches.veth import iperf
from scripts.benches.veth.worker.streams import STREAM
from scripts.harness import perf
from scripts.harness.client_server import run_both
from scripts.harness.drops import Drops
from scripts.harness.errors import BenchError
from scripts.harness.two_hosts import RECEIVER, SENDER, halves, veth_pair
from scripts.harness.worker import worker

NAME = f"benchtest-{os.getpid()}"
WORKER = "scripts.benches.veth.worker.streams"


@pytest.mark.parametrize(("offload", "state"), [(True, "on"), (False, "off")])
@pytest.mark.root
def test_veth_pair__offloads_addresses_and_end(*, offload: bool, state: str) -> None:
    with veth_pair(mtu=1500, offload=offload, name=NAME) as two:
        for node, neighbour in ((SENDER, RECEIVER), (RECEIVER, SENDER)):
            said = subprocess.run(
                two.command(node, ["ethtool", "-k", neighbour]), capture_output=True, text=True, check=True
            ).stdout
            assert f"tx-udp-segmentation: {state}" in said
            assert f"tcp-segmentation-offload: {state}" in said
        namespaces = two.namespaces
        assert Drops.read(namespaces).receive_buffers == 0
        assert all(exists(each) for each in namespaces)
    assert not any(exists(each) for each in namespaces)


@pytest.mark.parametrize(
    ("processors", "expected"),
    [([7], ("7", "7")), ([0, 1], ("0", "1")), ([0, 2, 3], ("0", "2,3")), ([0, 1, 2, 3], ("0,1", "2,3"))],
)
def test_halves(monkeypatch: pytest.MonkeyPatch, processors: list[int], expected: tuple[str, str]) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(processors))
    assert tuple(before[-1] for before in halves()) == expected


@pytest.mark.root  # chrt
def test_halves__processes_have_them() -> None:
    script = "import os; print(*sorted(os.sched_getaffinity(0)), sep=',')"
    for before in halves():
        done = subprocess.run([*before, sys.executable, "-c", script], capture_output=True, text=True, check=True)
        assert done.stdout.strip() == before[-1]


@pytest.mark.root
def test_run_both__bulk_is_whole_and_errors_are_one_line() -> None:
    with veth_pair(mtu=9000, offload=True, name=NAME) as two:
        received, sent = run_both(
            two,
            server=worker(WORKER, "receive", host=two.receiver, kind=STREAM, count=1),
            client=lambda host, port: worker(WORKER, "send", host=host, port=port, kind=STREAM, count=1, seconds=0.01),
            bound_s=60,
        )
        assert received["intact"]
        assert received["cpu_s"] > 0 < sent["cpu_s"]
        elsewhere = worker(WORKER, "receive", host="192.0.2.1", kind=STREAM, count=1)
        with pytest.raises(BenchError, match=r"the server did not listen .* 192\.0\.2\.1"):
            run_both(two, server=elsewhere, client=lambda _h, _p: [], bound_s=5)


@pytest.mark.root
def test_perf__bulk_rate_and_round_trips() -> None:
    with veth_pair(mtu=9000, offload=True, name=NAME) as two:
        flow = iperf.ours(two, seconds=0.3, plain=True)
        assert flow.gbps > 0
        assert flow.cpu_s_per_gb > 0
        (row,) = perf.rows(two, "rate", "-s", "64", "--iters", "1000", "--plain", bound_s=10)
        assert row["iterations"] == 1000
        found = latency.round_trips(two, *latency.TCP, sizes=(64, 4096), seconds=0.1, prefix="x_")
        assert found.keys() == {f"x_{name}_{size}_us" for name in latency.PERCENTILES for size in ("64b", "4kib")}
        with pytest.raises(BenchError, match=r"^srd perf client: .*none"):
            perf.measure(two, "client", "--tcp", "-C", "none", bound_s=1)
