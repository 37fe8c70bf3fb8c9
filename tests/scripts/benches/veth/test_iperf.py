"""scripts.benches.veth.iperf: its report is parsed."""

from __future__ import annotations

import copy
import socket
from typing import Any

import pytest

from scripts.benches.veth.iperf import IperfFlow, figures, listens
from scripts.harness.errors import BenchError

REPORT: dict[str, Any] = {
    "end": {
        "sum_received": {"seconds": 2.0, "bytes": 4_000_000_000, "bits_per_second": 16e9},
        "cpu_utilization_percent": {"host_total": 90.0, "remote_total": 60.0},
        "sender_tcp_congestion": "cubic",
        "receiver_tcp_congestion": "cubic",
    }
}


def test_figures() -> None:
    assert figures(REPORT, algorithm="cubic") == IperfFlow(gbps=16.0, cpu_s_per_gb=0.75)


def test_figures__wrong_algorithm_is_an_error() -> None:
    with pytest.raises(BenchError, match="ran cubic instead of bbr"):
        figures(copy.deepcopy(REPORT), algorithm="bbr")


def test_figures__error_is_raised() -> None:
    with pytest.raises(BenchError, match="unable to connect"):
        figures({"error": "unable to connect to server"}, algorithm="cubic")


def test_listens() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
        assert not listens(port)
        listener.listen()
        assert listens(port)
