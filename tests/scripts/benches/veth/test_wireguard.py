"""scripts.benches.veth.wireguard: a tunnel carries kernel TCP, encrypted, and leaves nothing behind."""

from __future__ import annotations

import os

import pytest

from scripts.benches.veth import iperf
from scripts.benches.veth.wireguard import SOCKETS, tunnel
from scripts.harness.errors import BenchError
from scripts.harness.two_hosts import TwoHosts, veth_pair
from srd.perf.tcp_socket import CUBIC

pytestmark = pytest.mark.root
NAME = f"test-wireguard-{os.getpid()}"  # of this worker


@pytest.mark.long
def test_tunnel__carries_tcp_and_ends() -> None:
    with veth_pair(mtu=1500, offload=True, name=NAME) as two:
        with tunnel(two, mtu=1500) as inner:
            assert inner.receiver != two.receiver
            assert iperf.run(inner, algorithm=CUBIC, seconds=0.3).gbps > 0
            names = [path.name for path in SOCKETS.glob("srdwg*")]
            assert len(names) == 2
        assert not any((SOCKETS / name).exists() for name in names)


def test_tunnel__does_not_come_up_bad_flow(monkeypatch: pytest.MonkeyPatch) -> None:
    real = TwoHosts.command
    monkeypatch.setattr(TwoHosts, "command", lambda self, node, argv: real(self, node, ["false", *argv[1:]]))
    with (
        veth_pair(mtu=1500, offload=True, name=NAME) as two,
        pytest.raises(BenchError, match=r"^the wireguard-go ended with status 1"),
        tunnel(two, mtu=1500),
    ):
        pass
