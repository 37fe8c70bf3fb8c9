from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srd.proto.pacing import (
    CLOCKED_RTTS,
    INFLIGHT_BDPS,
    LONG_RTT_S,
    MIN_SPAN_PACKETS,
    SPAN_LIMITS,
    Ceiling,
    Crowd,
    Pacer,
    Progress,
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


def test_progress__free_after_so_many_round_trips_of_neither_waiting_nor_want() -> None:
    rtt_s, progress = 0.001, Progress()
    long_s = CLOCKED_RTTS * rtt_s
    assert not progress.free(100.0, rtt_s=rtt_s), "nothing was sent yet"
    progress.go_on(100.0)
    assert not progress.free(100.0 + 0.9 * long_s, rtt_s=rtt_s)
    progress.go_on(100.0 + 0.9 * long_s)
    assert progress.free(100.0 + 1.1 * long_s, rtt_s=rtt_s)
    progress.pause()
    assert not progress.free(100.0 + 1.1 * long_s, rtt_s=rtt_s), "it ran out of work"
    progress.go_on(101.0)
    progress.held(101.0 + long_s)
    assert progress.clocked(101.0 + 1.5 * long_s, rtt_s=rtt_s)
    assert not progress.free(101.0 + 1.5 * long_s, rtt_s=rtt_s), "the window held something back"
    assert not progress.clocked(101.0 + 2.1 * long_s, rtt_s=rtt_s)
    assert progress.free(101.0 + 2.1 * long_s, rtt_s=rtt_s)


def ceiling_of(least_bytes: int, *, crowd: Crowd | None = None, number: int = 1) -> Ceiling:
    return Ceiling(least_bytes, datagram_bytes=1000, crowd=Crowd({}) if crowd is None else crowd, number=number)


def deliver(ceiling: Ceiling, *, bytes_per_s: float, rtt_s: float, min_rtt_s: float, rtts: int = 10) -> None:
    """Acks of so many round trips, ten in each."""
    for ack in range(1, 10 * rtts + 1):
        now, size = 100.0 + ack * rtt_s / 10, int(bytes_per_s * rtt_s / 10)
        ceiling.on_ack(now=now, acked_bytes=size, rtt_s=rtt_s, min_rtt_s=min_rtt_s)


def test_ceiling__a_short_path_has_the_least_whatever_it_delivers() -> None:
    """Where many peers of one host are at work its own queues are most of every round trip."""
    ceiling = ceiling_of(1_000_000)
    deliver(ceiling, bytes_per_s=1e9, rtt_s=0.02, min_rtt_s=0.9 * LONG_RTT_S)
    assert ceiling.reached(1_000_000)
    deliver(ceiling, bytes_per_s=1e9, rtt_s=0.02, min_rtt_s=LONG_RTT_S)
    assert not ceiling.reached(1_000_000)


def test_ceiling__once_reached_half_is_answered_first() -> None:
    ceiling = ceiling_of(1_000_000)
    assert [
        ceiling.reached(1000 * inflight) for inflight in (0, 999, 1000, 1200, 999, 500, 499, 999, 1000)
    ] == [False, False, True, True, True, True, False, False, True]  # fmt: skip


def test_ceiling__is_shared_by_those_at_work() -> None:
    crowd = Crowd({1: None, 2: None, 3: None})
    one, other, idle = (ceiling_of(1_000_000, crowd=crowd, number=number) for number in range(3))
    assert not idle.reached(0)
    assert not one.reached(600_000)
    assert not other.reached(1)
    assert one.reached(600_000)
    assert other.reached(500_000)
    assert not other.reached(0)
    assert not one.reached(499_999)
    assert not one.reached(600_000)
    assert len(crowd) == 3


def test_ceiling__leaves_everyone_a_datagram() -> None:
    crowd = Crowd({})
    ceilings = [ceiling_of(1_000_000, crowd=crowd, number=number) for number in range(1000)]
    assert not any(ceiling.reached(65_506) for ceiling in ceilings)
    assert all(ceiling.reached(65_507) for ceiling in ceilings)


def test_ceiling__follows_the_bandwidth_delay_product_of_a_long_path() -> None:
    ceiling = ceiling_of(1_000_000)
    deliver(ceiling, bytes_per_s=1.25e9, rtt_s=0.15, min_rtt_s=0.1)
    limit_bytes = INFLIGHT_BDPS * 125e6
    assert not ceiling.reached(int(0.99 * limit_bytes))
    assert ceiling.reached(int(1.01 * limit_bytes))
    assert ceiling.reached(int(limit_bytes - 0.45e6)), "half of the least is answered first, not half of it all"
    assert not ceiling.reached(int(0.99 * limit_bytes - 0.5e6))
    assert ceiling.span_packets == pytest.approx(SPAN_LIMITS * limit_bytes / 1000, rel=0.01)


def test_ceiling__says_when_a_long_path_is_full() -> None:
    """Then a window need not grow; that of a short path may, as processors take turns with the window there."""
    ceiling = ceiling_of(1_000_000)
    assert ceiling.reached(1_000_000)
    assert not ceiling.path_full
    deliver(ceiling, bytes_per_s=1e9, rtt_s=0.1, min_rtt_s=0.1)
    assert not ceiling.reached(100_000_000)
    assert not ceiling.path_full
    assert ceiling.reached(201_000_000)
    assert ceiling.path_full


def test_ceiling__queues_do_not_count() -> None:
    """25 Gbit/s over veth: 0.1 ms, of which hosts make 3."""
    ceiling = ceiling_of(8 << 20)
    deliver(ceiling, bytes_per_s=3.1e9, rtt_s=0.003, min_rtt_s=0.0001)
    assert not ceiling.reached((8 << 20) - 1)
    assert ceiling.reached(8 << 20)
    assert ceiling.span_packets == MIN_SPAN_PACKETS


def test_ceiling__acks_that_tell_of_no_round_trip_say_nothing() -> None:
    ceiling = ceiling_of(1_000_000)
    deliver(ceiling, bytes_per_s=1e9, rtt_s=0.1, min_rtt_s=math.inf)
    assert not ceiling.reached(999_999)
    assert ceiling.reached(1_000_000)


def test_ceiling__what_is_delivered_no_more_is_forgotten() -> None:
    ceiling = ceiling_of(1_000_000)
    deliver(ceiling, bytes_per_s=1e9, rtt_s=0.1, min_rtt_s=0.1)
    assert not ceiling.reached(150_000_000)
    for ack in range(1, 25):  # ten round trips, and those that are cut by rounding
        ceiling.on_ack(now=101.0 + ack / 10, acked_bytes=1000, rtt_s=0.1, min_rtt_s=0.1)
    assert ceiling.reached(1_000_000)


def test_ceiling__a_path_is_each_peers_own() -> None:
    """What hosts may hold is shared, as it may wait in one socket; what is on its way over a long path is not."""
    crowd = Crowd({})
    one, other = (ceiling_of(1_000_000, crowd=crowd, number=number) for number in range(2))
    deliver(one, bytes_per_s=1e9, rtt_s=0.1, min_rtt_s=0.1)
    assert not other.reached(400_000)
    assert not one.reached(150_000_000)
    assert other.reached(500_000)
