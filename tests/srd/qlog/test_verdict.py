"""What is said of a peer in one sentence."""

from __future__ import annotations

from srd.proto.trace import PacketsLost, PortBound
from srd.qlog.verdict import path_name, verdict, window_full, worst_paths
from tests.srd.qlog.test_summary import ack, burst, data, metrics, summary


def test_verdict__rate_losses_and_the_longest_wait() -> None:
    peer = summary(
        (0.0, PortBound(1, 4001)),
        (0.0, burst(0, psn=0, packets=4)),
        (0.1, burst(1, psn=4, packets=4)),
        (0.5, PacketsLost(1, 0, 4, 3, "timeout")),
        (1.0, ack(8)),
    )
    assert verdict(peer) == (
        "0.00119 MiB acknowledged in 1 s, 0.00998 Mbit/s; 3 of 8 packets (38 %) taken for lost, most on path 1 "
        "(port 4001): 3; the longest time without an acknowledgement was 1000 ms, at 0 s."
    )


def test_verdict__of_a_receiver_and_of_nothing() -> None:
    peer = summary((0.0, data(0, kept=100)), (0.5, data(0, kept=100, incomplete=False)))
    assert verdict(peer) == (
        "0.000191 MiB received in 0.5 s, 0.0032 Mbit/s; the longest time without new data was 500 ms, at 0 s."
    )
    assert verdict(summary((0.0, PortBound(0, 1)))) == ""


def test_verdict__the_window_is_the_limit_or_not() -> None:
    full = summary((0.0, metrics(1000, inflight=950)), (0.6, metrics(1000, inflight=100)), (1.0, ack(1)))
    assert window_full(full) == 0.6
    assert verdict(full).endswith("The congestion window was the limit: the window was full for 60 % of the time.")
    idle = summary((0.0, metrics(1000, inflight=100)), (0.1, burst(0, psn=0)))
    assert window_full(idle) == 0.0
    assert "was not the limit (the window was full for 0 % of the time)" in verdict(idle)


def test_window_full__counts_from_the_first_window_on() -> None:
    assert window_full(summary((0.0, burst(0, psn=0, packets=100)), (1.0, ack(1)))) is None
    late = summary((0.0, burst(0, psn=0, packets=100)), (0.1, metrics(1000, inflight=0)), (0.2, ack(1)))
    assert window_full(late) == 0.0


def test_verdict__of_one_direction_without_the_confirmations_of_the_other() -> None:
    peer = summary((0.0, burst(0, psn=0, packets=100)), (0.5, ack(100)), (1.0, data(0, kept=100, incomplete=False)))
    assert "received" not in verdict(peer)


def test_verdict__large_numbers_are_written_out() -> None:
    peer = summary((0.0, data(0, kept=3 << 30, size=3 << 30)), (1.0, data(0, kept=0)))
    assert verdict(peer).startswith("3072 MiB received in 1 s, 25770 Mbit/s; ")


def test_paths__names_and_ranks() -> None:
    assert (path_name(1, {1: 4001}), path_name(2, {1: 4001})) == ("path 1 (port 4001)", "path 2")
    peer = summary(*((0.0, PacketsLost(path, 0, 0, packets, "timeout")) for path, packets in ((3, 5), (1, 9), (2, 5))))
    assert worst_paths(peer.sent, most=2) == [1, 2]
    assert worst_paths(summary((0.0, burst(0, psn=0))).sent, most=2) == []
