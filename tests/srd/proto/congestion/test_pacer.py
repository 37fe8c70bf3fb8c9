from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srd.proto.congestion.pacer import (
    CWND_LIMITED_RTTS,
    INFLIGHT_BDPS,
    LONG_RTT_S,
    MIN_SPAN_PACKETS,
    SPAN_LIMITS,
    ActivePeers,
    InflightLimit,
    Pacer,
    SendLimit,
)

DEPTH_S = 0.001


def test_release_at__at_once_when_idle() -> None:
    pacer = Pacer(depth_s=DEPTH_S)
    assert pacer.release_at() < 10.0
    pacer.charge(1000, now=10.0, rate_bytes_per_s=1e9)
    assert pacer.release_at() < 10.0  # a microsecond of debt is within the bucket's depth


def test_charge__half_a_packet_a_round_trip() -> None:
    """Windows below one packet: at 500 bytes a millisecond, 1000 bytes take two."""
    pacer = Pacer(depth_s=DEPTH_S)
    pacer.charge(1000, now=10.0, rate_bytes_per_s=500 / 0.001)
    assert pacer.release_at() == pytest.approx(10.002 - DEPTH_S)


def test_charge__idle_time_is_not_saved_up() -> None:
    pacer = Pacer(depth_s=DEPTH_S)
    pacer.charge(1000, now=10.0, rate_bytes_per_s=1e6)
    pacer.charge(1000, now=20.0, rate_bytes_per_s=1e6)
    assert pacer.release_at() == pytest.approx(20.001 - DEPTH_S)


@given(sizes=st.lists(st.integers(56, 65_507), min_size=1, max_size=200), rate=st.floats(1e4, 1e10))
def test_release_at__keeps_the_pace(sizes: list[int], rate: float) -> None:
    """Sending whenever allowed never exceeds rate x time, plus the bucket and the burst that overdraws it."""
    pacer, now, sent = Pacer(depth_s=DEPTH_S), 10.0, 0
    for size in sizes:
        now = max(now, pacer.release_at())
        assert sent <= rate * (now - 10.0 + DEPTH_S) * (1 + 1e-9) + 1e-3
        pacer.charge(size, now=now, rate_bytes_per_s=rate)
        sent += size


def test_hold__nothing_before_and_no_burst_of_bursts_after() -> None:
    pacer = Pacer(depth_s=DEPTH_S)
    pacer.hold(until=11.0)
    assert pacer.release_at() == pytest.approx(11.0)
    pacer.hold(until=10.5)
    assert pacer.release_at() == pytest.approx(11.0)
    pacer.charge(1000, now=11.0, rate_bytes_per_s=1e6)
    assert pacer.release_at() == pytest.approx(11.001)


def test_send_limit__free_after_so_many_round_trips_of_neither_waiting_nor_want() -> None:
    rtt_s, progress = 0.001, SendLimit()
    long_s = CWND_LIMITED_RTTS * rtt_s
    assert not progress.cpu_limited(100.0, rtt_s=rtt_s), "nothing was sent yet"
    progress.on_app_resumed(100.0)
    assert not progress.cpu_limited(100.0 + 0.9 * long_s, rtt_s=rtt_s)
    progress.on_app_resumed(100.0 + 0.9 * long_s)
    assert progress.cpu_limited(100.0 + 1.1 * long_s, rtt_s=rtt_s)
    progress.on_app_limited()
    assert not progress.cpu_limited(100.0 + 1.1 * long_s, rtt_s=rtt_s), "it ran out of work"
    progress.on_app_resumed(101.0)
    progress.on_limited(101.0 + long_s)
    assert progress.cwnd_limited(101.0 + 1.5 * long_s, rtt_s=rtt_s)
    assert not progress.cpu_limited(101.0 + 1.5 * long_s, rtt_s=rtt_s), "the window held something back"
    assert not progress.cwnd_limited(101.0 + 2.1 * long_s, rtt_s=rtt_s)
    assert progress.cpu_limited(101.0 + 2.1 * long_s, rtt_s=rtt_s)


def ceiling_of(least_bytes: int, *, active_peers: ActivePeers | None = None, number: int = 1) -> InflightLimit:
    return InflightLimit(
        least_bytes,
        datagram_bytes=1000,
        active_peers=ActivePeers({}) if active_peers is None else active_peers,
        number=number,
    )


def deliver(
    inflight_limit: InflightLimit, *, bytes_per_s: float, rtt_s: float, min_rtt_s: float, rtts: int = 10
) -> None:
    """Acks of so many round trips, ten in each."""
    for ack in range(1, 10 * rtts + 1):
        now, size = 100.0 + ack * rtt_s / 10, int(bytes_per_s * rtt_s / 10)
        inflight_limit.on_ack(now=now, acked_bytes=size, rtt_s=rtt_s, min_rtt_s=min_rtt_s)


def test_inflight_limit__a_short_path_has_the_least_whatever_it_delivers() -> None:
    """Where many peers of one host are at work its own queues are most of every round trip."""
    inflight_limit = ceiling_of(1_000_000)
    deliver(inflight_limit, bytes_per_s=1e9, rtt_s=0.02, min_rtt_s=0.9 * LONG_RTT_S)
    assert inflight_limit.is_reached(1_000_000)
    deliver(inflight_limit, bytes_per_s=1e9, rtt_s=0.02, min_rtt_s=LONG_RTT_S)
    assert not inflight_limit.is_reached(1_000_000)


def test_inflight_limit__once_reached_half_is_answered_first() -> None:
    inflight_limit = ceiling_of(1_000_000)
    assert [
        inflight_limit.is_reached(1000 * inflight) for inflight in (0, 999, 1000, 1200, 999, 500, 499, 999, 1000)
    ] == [False, False, True, True, True, True, False, False, True]  # fmt: skip


def test_inflight_limit__is_shared_by_those_at_work() -> None:
    active_peers = ActivePeers({1: None, 2: None, 3: None})
    one, other, idle = (ceiling_of(1_000_000, active_peers=active_peers, number=number) for number in range(3))
    assert not idle.is_reached(0)
    assert not one.is_reached(600_000)
    assert not other.is_reached(1)
    assert one.is_reached(600_000)
    assert other.is_reached(500_000)
    assert not other.is_reached(0)
    assert not one.is_reached(499_999)
    assert not one.is_reached(600_000)
    assert len(active_peers) == 3


def test_inflight_limit__leaves_everyone_a_datagram() -> None:
    active_peers = ActivePeers({})
    ceilings = [ceiling_of(1_000_000, active_peers=active_peers, number=number) for number in range(1000)]
    assert not any(inflight_limit.is_reached(65_506) for inflight_limit in ceilings)
    assert all(inflight_limit.is_reached(65_507) for inflight_limit in ceilings)


def test_inflight_limit__follows_the_bandwidth_delay_product_of_a_long_path() -> None:
    inflight_limit = ceiling_of(1_000_000)
    deliver(inflight_limit, bytes_per_s=1.25e9, rtt_s=0.15, min_rtt_s=0.1)
    limit_bytes = INFLIGHT_BDPS * 125e6
    assert not inflight_limit.is_reached(int(0.99 * limit_bytes))
    assert inflight_limit.is_reached(int(1.01 * limit_bytes))
    assert inflight_limit.is_reached(int(limit_bytes - 0.45e6)), (
        "half of the least is answered first, not half of it all"
    )
    assert not inflight_limit.is_reached(int(0.99 * limit_bytes - 0.5e6))
    assert inflight_limit.span_packets == pytest.approx(SPAN_LIMITS * limit_bytes / 1000, rel=0.01)


def test_inflight_limit__is_reached_when_a_long_path_is_full() -> None:
    """Then a window need not grow; that of a short path may, as processors take turns with the window there."""
    inflight_limit = ceiling_of(1_000_000)
    assert inflight_limit.is_reached(1_000_000)
    assert not inflight_limit.path_full
    deliver(inflight_limit, bytes_per_s=1e9, rtt_s=0.1, min_rtt_s=0.1)
    assert not inflight_limit.is_reached(100_000_000)
    assert not inflight_limit.path_full
    assert inflight_limit.is_reached(201_000_000)
    assert inflight_limit.path_full


def test_inflight_limit__queues_do_not_count() -> None:
    """25 Gbit/s over veth: 0.1 ms, of which hosts make 3."""
    inflight_limit = ceiling_of(8 << 20)
    deliver(inflight_limit, bytes_per_s=3.1e9, rtt_s=0.003, min_rtt_s=0.0001)
    assert not inflight_limit.is_reached((8 << 20) - 1)
    assert inflight_limit.is_reached(8 << 20)
    assert inflight_limit.span_packets == MIN_SPAN_PACKETS


def test_inflight_limit__acks_without_an_rtt_change_nothing() -> None:
    inflight_limit = ceiling_of(1_000_000)
    deliver(inflight_limit, bytes_per_s=1e9, rtt_s=0.1, min_rtt_s=math.inf)
    assert not inflight_limit.is_reached(999_999)
    assert inflight_limit.is_reached(1_000_000)


def test_inflight_limit__what_is_delivered_no_more_is_forgotten() -> None:
    inflight_limit = ceiling_of(1_000_000)
    deliver(inflight_limit, bytes_per_s=1e9, rtt_s=0.1, min_rtt_s=0.1)
    assert not inflight_limit.is_reached(150_000_000)
    for ack in range(1, 25):  # ten round trips, and those that are cut by rounding
        inflight_limit.on_ack(now=101.0 + ack / 10, acked_bytes=1000, rtt_s=0.1, min_rtt_s=0.1)
    assert inflight_limit.is_reached(1_000_000)


def test_inflight_limit__a_path_is_each_peers_own() -> None:
    """What hosts may hold is shared, as it may wait in one socket; what is on its way over a long path is not."""
    active_peers = ActivePeers({})
    one, other = (ceiling_of(1_000_000, active_peers=active_peers, number=number) for number in range(2))
    deliver(one, bytes_per_s=1e9, rtt_s=0.1, min_rtt_s=0.1)
    assert not other.is_reached(400_000)
    assert not one.is_reached(150_000_000)
    assert other.is_reached(500_000)
