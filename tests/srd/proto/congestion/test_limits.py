from __future__ import annotations

import math

import pytest

from srd.proto.congestion.limits import (
    CWND_LIMITED_RTTS,
    EXCHANGE_LIMIT_BYTES,
    INFLIGHT_BDPS,
    MIN_SPAN_PACKETS,
    SPAN_LIMITS,
    ActivePeers,
    InflightLimit,
    SendLimit,
)
from srd.proto.paths.rtt import LONG_RTT_S


def test_send_limit__cpu_limited_after_round_trips_without_another_limit() -> None:
    rtt_s, send_limit = 0.001, SendLimit()
    long_s = CWND_LIMITED_RTTS * rtt_s
    assert not send_limit.cpu_limited(100.0, rtt_s=rtt_s), "nothing was sent yet"
    send_limit.on_app_resumed(100.0)
    assert not send_limit.cpu_limited(100.0 + 0.9 * long_s, rtt_s=rtt_s)
    send_limit.on_app_resumed(100.0 + 0.9 * long_s)
    assert send_limit.cpu_limited(100.0 + 1.1 * long_s, rtt_s=rtt_s)
    send_limit.on_app_limited()
    assert not send_limit.cpu_limited(100.0 + 1.1 * long_s, rtt_s=rtt_s), "it was app-limited"
    send_limit.on_app_resumed(101.0)
    send_limit.on_limited(101.0 + long_s)
    assert send_limit.cwnd_limited(101.0 + 1.5 * long_s, rtt_s=rtt_s)
    assert not send_limit.cpu_limited(101.0 + 1.5 * long_s, rtt_s=rtt_s), "it was cwnd-limited"
    assert not send_limit.cwnd_limited(101.0 + 2.1 * long_s, rtt_s=rtt_s)
    assert send_limit.cpu_limited(101.0 + 2.1 * long_s, rtt_s=rtt_s)


def limit_of(least_bytes: int, *, active_peers: ActivePeers | None = None, number: int = 1) -> InflightLimit:
    return InflightLimit(
        least_bytes,
        datagram_bytes=1000,
        active_peers=ActivePeers({}) if active_peers is None else active_peers,
        number=number,
    )


def deliver(
    inflight_limit: InflightLimit, *, bytes_per_s: float, rtt_s: float, min_rtt_s: float, rtts: int = 10
) -> None:
    """Acks of `rtts` round trips, ten in each."""
    for ack in range(1, 10 * rtts + 1):
        now, size = 100.0 + ack * rtt_s / 10, int(bytes_per_s * rtt_s / 10)
        inflight_limit.on_ack(now=now, acked_bytes=size, rtt_s=rtt_s, min_rtt_s=min_rtt_s)


def test_inflight_limit__of_a_short_path_is_the_minimum_whatever_it_delivers() -> None:
    """Where many peers of one host are active, most of each round trip is the host's own queues."""
    inflight_limit = limit_of(1_000_000)
    deliver(inflight_limit, bytes_per_s=1e9, rtt_s=0.02, min_rtt_s=0.9 * LONG_RTT_S)
    assert inflight_limit.update(1_000_000)
    deliver(inflight_limit, bytes_per_s=1e9, rtt_s=0.02, min_rtt_s=LONG_RTT_S)
    assert not inflight_limit.update(1_000_000)


def test_inflight_limit__once_reached_applies_until_half_is_acknowledged() -> None:
    inflight_limit = limit_of(1_000_000)
    assert [
        inflight_limit.update(1000 * inflight) for inflight in (0, 999, 1000, 1200, 999, 500, 499, 999, 1000)
    ] == [False, False, True, True, True, True, False, False, True]  # fmt: skip


def test_inflight_limit__is_shared_by_active_peers() -> None:
    active_peers = ActivePeers({1: None, 2: None, 3: None})
    one, other, idle = (limit_of(1_000_000, active_peers=active_peers, number=number) for number in range(3))
    assert not idle.update(0)
    assert not one.update(600_000)
    assert not other.update(1)
    assert one.update(600_000)
    assert other.update(500_000)
    assert not other.update(0)
    assert not one.update(499_999)
    assert not one.update(600_000)
    assert len(active_peers) == 3


def test_inflight_limit__leaves_every_peer_a_datagram() -> None:
    active_peers = ActivePeers({})
    limits = [limit_of(1_000_000, active_peers=active_peers, number=number) for number in range(1000)]
    assert not any(inflight_limit.update(65_506) for inflight_limit in limits)
    assert all(inflight_limit.update(65_507) for inflight_limit in limits)


@pytest.mark.parametrize(
    ("apart_s", "later_s", "is_lower"), [(0.001, 0.0, True), (0.001, 0.02, False), (0.02, 0.0, False)]
)
def test_inflight_limit__is_lower_while_short_messages_are_exchanged(
    apart_s: float,
    later_s: float,
    is_lower: bool,  # noqa: FBT001 - a case
) -> None:
    """Two short messages, `apart_s` apart, with another peer of the endpoint; then an ack of a bulk flow."""
    active_peers = ActivePeers({})
    bulk, other = (limit_of(4 * EXCHANGE_LIMIT_BYTES, active_peers=active_peers, number=number) for number in range(2))
    for at in (100.0, 100.0 + apart_s):
        other.on_short_message(at)
    bulk.on_ack(now=100.0 + apart_s + later_s, acked_bytes=1, rtt_s=0.001, min_rtt_s=0.0001)
    assert bulk.update(EXCHANGE_LIMIT_BYTES) is is_lower
    assert bulk.update(4 * EXCHANGE_LIMIT_BYTES)


def test_inflight_limit__follows_the_bandwidth_delay_product_of_a_long_path() -> None:
    inflight_limit = limit_of(1_000_000)
    deliver(inflight_limit, bytes_per_s=1.25e9, rtt_s=0.15, min_rtt_s=0.1)
    limit_bytes = INFLIGHT_BDPS * 125e6
    assert not inflight_limit.update(int(0.99 * limit_bytes))
    assert inflight_limit.update(int(1.01 * limit_bytes))
    assert inflight_limit.update(int(limit_bytes - 0.45e6)), (
        "it applies until half of the minimum, not of the limit, is acknowledged"
    )
    assert not inflight_limit.update(int(0.99 * limit_bytes - 0.5e6))
    assert inflight_limit.span_packets == pytest.approx(SPAN_LIMITS * limit_bytes / 1000, rel=0.01)


def test_inflight_limit__is_reached_when_a_long_path_is_full() -> None:
    """Then the window need not grow. That of a short path may: there, hosts limit the rate."""
    inflight_limit = limit_of(1_000_000)
    assert inflight_limit.update(1_000_000)
    assert not inflight_limit.path_full
    deliver(inflight_limit, bytes_per_s=1e9, rtt_s=0.1, min_rtt_s=0.1)
    assert not inflight_limit.update(100_000_000)
    assert not inflight_limit.path_full
    assert inflight_limit.update(201_000_000)
    assert inflight_limit.path_full


def test_inflight_limit__queueing_does_not_count() -> None:
    """25 Gbit/s over veth: the smallest round trip is 0.1 ms, with the hosts' queues 3 ms."""
    inflight_limit = limit_of(8 << 20)
    deliver(inflight_limit, bytes_per_s=3.1e9, rtt_s=0.003, min_rtt_s=0.0001)
    assert not inflight_limit.update((8 << 20) - 1)
    assert inflight_limit.update(8 << 20)
    assert inflight_limit.span_packets == MIN_SPAN_PACKETS


def test_inflight_limit__acks_without_an_rtt_change_nothing() -> None:
    inflight_limit = limit_of(1_000_000)
    deliver(inflight_limit, bytes_per_s=1e9, rtt_s=0.1, min_rtt_s=math.inf)
    assert not inflight_limit.update(999_999)
    assert inflight_limit.update(1_000_000)


def test_inflight_limit__falls_with_the_delivery_rate() -> None:
    inflight_limit = limit_of(1_000_000)
    deliver(inflight_limit, bytes_per_s=1e9, rtt_s=0.1, min_rtt_s=0.1)
    assert not inflight_limit.update(150_000_000)
    for ack in range(1, 25):  # ten round trips, and a margin for rounding
        inflight_limit.on_ack(now=101.0 + ack / 10, acked_bytes=1000, rtt_s=0.1, min_rtt_s=0.1)
    assert inflight_limit.update(1_000_000)


def test_inflight_limit__of_a_long_path_is_per_peer() -> None:
    """What may queue in hosts is shared, as it may be in one socket; what is in flight over a long path is not."""
    active_peers = ActivePeers({})
    one, other = (limit_of(1_000_000, active_peers=active_peers, number=number) for number in range(2))
    deliver(one, bytes_per_s=1e9, rtt_s=0.1, min_rtt_s=0.1)
    assert not other.update(400_000)
    assert not one.update(150_000_000)
    assert other.update(500_000)
