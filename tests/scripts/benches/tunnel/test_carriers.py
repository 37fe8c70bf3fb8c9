"""scripts.benches.tunnel: tunnels come up, carry a stream and many connections, and leave nothing behind."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace

import pytest

from netns.processes import processes_in
from scripts.benches.tunnel.carriers import CarrierUsage, await_answer, openvpn, wireguard_go
from scripts.benches.tunnel.streams import WORKER, Sockets, stream
from scripts.harness.client_server import run_both
from scripts.harness.errors import BenchError
from scripts.harness.process import ProcessGroup
from scripts.harness.two_hosts import TwoHosts, veth_pair
from scripts.harness.worker import worker
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.root
NAME = f"test-tunnel-{os.getpid()}"  # of this worker
MTU = 1500


@pytest.mark.long
@pytest.mark.parametrize("carrier", [wireguard_go, openvpn])
def test_carrier__carries_tcp_and_ends(carrier: Callable[..., AbstractContextManager[TwoHosts]]) -> None:
    with veth_pair(mtu=MTU, offload=True, name=NAME) as ends:
        with carrier(ends, mtu=MTU) as inner:
            assert inner.receiver != ends.receiver
            assert inner.ping_ms(count=3) > 0
            with stream(inner, Sockets(), seconds=1.2) as ended:
                assert ended().mbps() > 0
            used = CarrierUsage.of(inner)
            assert used.cpu_s > 0
            assert used.peak_rss_bytes > 1_000_000
        assert not processes_in(ends.namespaces)


def test_await_answer__of_a_process_that_ends() -> None:
    with veth_pair(mtu=MTU, offload=True, name=NAME) as two, ProcessGroup() as group:
        group.start("tunnel", ["sh", "-c", "echo no such device >&2; exit 1"])
        with pytest.raises(BenchError, match=r"^the tunnel ended with status 1: no such device$"):
            await_answer(replace(two, sender="192.0.2.1", receiver="192.0.2.2"), group)


def test_connections__all_at_once_and_right() -> None:
    with veth_pair(mtu=MTU, offload=True, name=NAME) as two:
        served, exchanged = run_both(
            two,
            server=worker(WORKER, "connections_receive", host=two.receiver),
            client=lambda host, port: worker(WORKER, "connections_send", host=host, port=port, count=50),
            bound_s=PATIENCE_S,
        )
    assert served["connections"] == served["at_once"] == exchanged["right"] == 50
