"""`srd tunnel --fallback`: while SRD does not answer, packets go in plain UDP, and every byte of them arrives."""

from __future__ import annotations

import os
import socket
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from netns.backends.relay.tap import inside
from srd.io import syscalls
from srd.tunnel.stats import ask
from tests.srd.cli.processes import assert_fails, srd
from tests.srd.tunnel.cable import ip
from tests.srd.tunnel.two_ends import TARGET_PORT, UDP_PORT, Ends, ends, exchange, inner

pytestmark = pytest.mark.root

METRICS_PORT = 9099
METRICS = {
    "ena_srd_mode": "ena_srd_mode",
    "ena_srd_resource_utilization": "ena_srd_resource_utilization",
    "ena_srd_tx_pkts": "ena_srd_tx_pkts_total",
    "ena_srd_eligible_tx_pkts": "ena_srd_eligible_tx_pkts_total",
    "ena_srd_rx_pkts": "ena_srd_rx_pkts_total",
    "encapsulated_tx_pkts": "srd_tunnel_encapsulated_tx_pkts_total",
    "encapsulated_rx_pkts": "srd_tunnel_encapsulated_rx_pkts_total",
    "encapsulation_active": "srd_tunnel_encapsulation_active",
}
DONT_FRAGMENT, MAY_FRAGMENT = 2, 0  # IP_PMTUDISC_DO, IP_PMTUDISC_DONT of linux/in.h


def counters(made: Ends, host: int) -> dict[str, Any]:
    with inside(made.netns[host]):
        return ask("srd0")


def both(made: Ends) -> list[dict[str, Any]]:
    return [counters(made, host) for host in range(2)]


@contextmanager
def srd_blocked(made: Ends) -> Iterator[None]:
    """Drop what comes to the listener's SRD port, as a firewall does."""
    block = ("iif", "to1", "ipproto", "udp", "dport", str(TARGET_PORT), "type", "blackhole")
    netns = made.netns[0]
    if "0:" in ip("rule", "show", netns=netns):  # the local table is asked before all others
        ip("rule", "add", "pref", "2", "lookup", "local", netns=netns)
        ip("rule", "del", "pref", "0", netns=netns)
    ip("rule", "add", "pref", "1", *block, netns=netns)
    yield
    ip("rule", "del", "pref", "1", netns=netns)


def until_over_srd(made: Ends, send_megabyte: Callable[[], None]) -> None:
    """Send until SRD has carried it and nothing else has: on a busy machine a peer may be lost, and come again."""
    while True:
        before = both(made)
        send_megabyte()
        after = both(made)
        grown = [
            {name: each[name] - earlier[name] for name in ("encapsulated_tx_pkts", "ena_srd_tx_pkts")}
            for each, earlier in zip(after, before, strict=True)
        ]
        if all(each["encapsulated_tx_pkts"] < 10 and each["ena_srd_tx_pkts"] > (1 << 20) // 1500 for each in grown):
            return


def test_fallback__whenever_srd_does_not_answer(tmp_path: Path) -> None:
    with ends(tmp_path, "--fallback") as made:
        made.listen()
        with srd_blocked(made):
            made.connect(awaits="no SRD peer answers")
            connection = made.stack.enter_context(made.connection())
            connection.exchange(2)
            exchange(made, version=6, megabytes=1)
            for each in both(made):
                assert each["ena_srd_tx_pkts"] == each["ena_srd_rx_pkts"] == 0
                assert each["ena_srd_eligible_tx_pkts"] == each["encapsulated_tx_pkts"] > (3 << 20) // 1400
                assert each["encapsulated_rx_pkts"] > (3 << 20) // 1400
                assert each["encapsulation_active"] is True
        made.await_line(1, "packets go over SRD again")
        connection.exchange(1)  # whatever is left on the other way has arrived
        until_over_srd(made, lambda: connection.exchange(1))
        with srd_blocked(made):
            connection.exchange(1)  # SRD notices only that what it sends is not answered
            made.await_line(1, "no SRD peer answers")


def test_fallback__packets_that_are_too_long_for_the_path(tmp_path: Path) -> None:
    with ends(tmp_path, "--fallback", "--mtu", "1500", mtu=1400) as made:
        made.listen()
        with srd_blocked(made):
            made.connect(awaits="no SRD peer answers")
            for version in (4, 6):
                exchange(made, version=version, megabytes=1)  # TCP learns it
            with made.udp(1) as near, made.udp(0) as far:
                payload = os.urandom(1472)
                near.setsockopt(socket.IPPROTO_IP, syscalls.IP_MTU_DISCOVER, MAY_FRAGMENT)
                near.sendto(payload, (inner(0), UDP_PORT))
                assert far.recv(2000) == payload
                near.setsockopt(socket.IPPROTO_IP, syscalls.IP_MTU_DISCOVER, DONT_FRAGMENT)
                near.connect((inner(0), UDP_PORT))
                while near.getsockopt(socket.IPPROTO_IP, syscalls.IP_MTU) != 1400 - 28:
                    with suppress(OSError):  # EMSGSIZE
                        near.send(payload)
            assert counters(made, 1)["dropped"]["too_long"] > 0


def test_express_for__other_packets_go_around(tmp_path: Path) -> None:
    with ends(tmp_path, "--fallback") as made:
        made.listen("--express-for", "fd88::/64")
        made.connect(1, "--express-for", "fd88::/64", "--metrics", f"127.0.0.1:{METRICS_PORT}")
        exchange(made, version=4, megabytes=1)
        for each in both(made):
            assert each["ena_srd_eligible_tx_pkts"] < 10
            assert each["encapsulated_tx_pkts"] > (1 << 20) // 1500
        until_over_srd(made, lambda: exchange(made, version=6, megabytes=1))
        for each in both(made):
            assert each["ena_srd_eligible_tx_pkts"] >= each["ena_srd_tx_pkts"]
        before = counters(made, 1)
        with inside(made.netns[1]), urllib.request.urlopen(f"http://127.0.0.1:{METRICS_PORT}/metrics") as answer:
            lines = answer.read().decode().splitlines()
        after = counters(made, 1)
        served = dict(line.rsplit(maxsplit=1) for line in lines if not line.startswith("#"))
        for name, metric in METRICS.items():
            assert before[name] <= float(served[metric]) <= after[name]
        assert served["srd_tunnel_peers"] == "1.0"


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["h:1", "--express-for", "10.0.0.0/8"], "add --fallback"),
        (["h:65535", "--fallback"], "no port behind 65535"),
    ],
)
def test_options__that_cannot_be(arguments: list[str], error: str) -> None:
    assert_fails(srd("tunnel", "connect", *arguments, "--address", "10.88.0.2/24"), status=2, error=error)


def test_fallback__a_port_in_use(tmp_path: Path) -> None:
    with ends(tmp_path) as made, inside(made.netns[0]), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("0.0.0.0", TARGET_PORT + 1))  # noqa: S104 - in a namespace
        done = made.run(0, "listen", "--address", f"{inner(0)}/24", "--fallback", "--bind", "0.0.0.0", "--allow-anyone")  # noqa: S104
        assert done.returncode == 1
        assert f"--fallback: plain UDP at 0.0.0.0:{TARGET_PORT + 1}: Address already in use" in done.stderr
        assert made.interfaces(0) == []
