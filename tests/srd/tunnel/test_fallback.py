"""`srd tunnel --fallback`: while SRD does not answer, packets go in plain UDP, and every byte of them arrives."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.srd.tunnel.cable import ip
from tests.srd.tunnel.two_ends import TARGET_PORT, Connection, Ends, ends, exchange

pytestmark = pytest.mark.root

FALLBACK_PORT = TARGET_PORT + 1


@contextmanager
def srd_blocked(made: Ends) -> Iterator[None]:
    """Drop what comes to the listener's SRD port, as a firewall does."""
    netns = made.netns[0]
    block = ("iif", "to1", "ipproto", "udp", "dport", str(TARGET_PORT), "type", "blackhole")
    ip("rule", "add", "pref", "2", "lookup", "local", netns=netns)
    ip("rule", "del", "pref", "0", netns=netns)
    ip("rule", "add", "pref", "1", *block, netns=netns)
    try:
        yield
    finally:
        ip("rule", "del", "pref", "1", netns=netns)


def test_fallback__until_srd_answers(tmp_path: Path) -> None:
    with ends(tmp_path, "--fallback") as made:
        made.listen()
        with srd_blocked(made):
            made.connect(awaits="no SRD peer answers")
            connection = made.stack.enter_context(Connection(made))
            connection.exchange(2)
            exchange(made, version=6, megabytes=1)
            for host in range(2):
                stats = made.stats(host)
                assert stats["ena_srd_tx_pkts"] == 0
                assert stats["ena_srd_eligible_tx_pkts"] == stats["encapsulated_tx_pkts"] > 3 << 20 >> 11
                assert stats["encapsulated_rx_pkts"] > 3 << 20 >> 11
                assert stats["encapsulation_active"] is True
        made.await_line(1, "packets go over SRD again")
        before = [made.stats(host) for host in range(2)]
        connection.exchange(2)
        for host in range(2):
            stats = made.stats(host)
            assert stats["encapsulated_tx_pkts"] - before[host]["encapsulated_tx_pkts"] < 100
            assert stats["ena_srd_tx_pkts"] > 2 << 20 >> 11
        assert made.stats(1)["encapsulation_active"] is False
