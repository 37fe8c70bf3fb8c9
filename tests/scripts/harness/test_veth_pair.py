"""scripts.harness.veth_pair and roles: two ends that reach each other, and nothing left behind."""

from __future__ import annotations

import os
import subprocess

import pytest

from netns.lab.builder import exists
from scripts.harness.client_server import python, run_both
from scripts.harness.drops import Drops
from scripts.harness.errors import BenchError
from scripts.harness.veth_pair import RECEIVER, SENDER, topology, veth_pair

NAME = f"benchtest-{os.getpid()}"
WORKER = "scripts.benches.veth.worker"


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


@pytest.mark.root
def test_run_both__bulk_is_whole_and_errors_are_one_line() -> None:
    with veth_pair(mtu=9000, offload=True, name=NAME) as two:
        received, sent = run_both(
            two,
            server=python(WORKER, "bulk-receive", two.receiver),
            client=lambda host, port: python(WORKER, "bulk-send", host, str(port), "--seconds", "0.01"),
            bound_s=60,
        )
        assert received["intact"]
        assert received["bytes"] == sent["bytes"] > 0
        assert received["cpu_s"] > 0 < sent["cpu_s"]
        with pytest.raises(BenchError, match=r"the server did not listen .* 192\.0\.2\.1"):
            run_both(two, server=python(WORKER, "bulk-receive", "192.0.2.1"), client=lambda _h, _p: [], bound_s=5)


def test_topology__two_nodes_and_one_link() -> None:
    assert topology(mtu=1500).nodes == (SENDER, RECEIVER)
