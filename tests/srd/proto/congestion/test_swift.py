"""Swift against its paper's rules."""

from __future__ import annotations

import math

import pytest

from srd.proto.config import ProtocolConfig
from tests.srd.proto.congestion.swift import MIN_WINDOW_PACKETS, RESET_TIMEOUTS, SCALING_RANGE, Swift

PACKET_BYTES = 9000
RTT_S = 0.002
BASE_S = 0.001


class Loop:
    def __init__(self, *, packets: float | None = None) -> None:
        self.control = Swift(ProtocolConfig(), packet_bytes=PACKET_BYTES)
        self.now = 10.0
        while packets is not None and self.packets < packets:
            self.round(0.0)

    @property
    def packets(self) -> float:
        return self.control.window_bytes / PACKET_BYTES

    def round(self, queue_s: float, *, endpoint_s: float = 0.0, marked: float = 0.0) -> None:
        """One round trip: an ack for each packet of the window."""
        for _ in range(count := max(int(self.packets), 1)):
            self.now += RTT_S / count
            self.control.on_sample(
                now=self.now,
                queue_s=queue_s,
                endpoint_s=endpoint_s,
                min_rtt_s=RTT_S,
                target_base_s=RTT_S,
                variation_s=0.0,
                ecn_fraction=marked,
            )
            self.control.on_ack(now=self.now, acked_bytes=PACKET_BYTES, rtt_s=RTT_S, ack_wait_s=0.0, cwnd_limited=True)


def test_on_ack__adds_one_packet_a_round_trip() -> None:
    loop = Loop()
    before = loop.packets
    for _ in range(10):
        loop.round(0.0)
    assert loop.packets - before == pytest.approx(10, rel=0.1)


@pytest.mark.parametrize("endpoint", [False, True])
def test_on_ack__shrinks_by_the_excess_at_most_once_a_round_trip(*, endpoint: bool) -> None:
    loop = Loop(packets=120)
    before, target_s = loop.packets, 0.004 if endpoint else BASE_S  # no flow scaling above 100 packets
    loop.round(0.0 if endpoint else 1.25 * target_s, endpoint_s=1.25 * target_s if endpoint else 0.0)
    assert loop.packets == pytest.approx(before * (1 - 0.8 * 0.2), rel=0.02)


def test_on_ack__shrinks_by_half_at_most() -> None:
    loop = Loop(packets=120)
    before = loop.packets
    loop.round(1.0)
    assert loop.packets == pytest.approx(before / 2, rel=0.02)


def test_fabric_target__grows_as_the_window_shrinks_within_its_range() -> None:
    control = Swift(ProtocolConfig(), packet_bytes=PACKET_BYTES)
    targets = []
    for packets in (200.0, 100.0, 10.0, 1.0, 0.1, 0.01):
        control._fabric_packets = packets
        targets.append(control.fabric_target_s(RTT_S))
    assert targets == sorted(targets)
    assert targets[0] == targets[1] == pytest.approx(BASE_S)
    assert targets[-1] == targets[-2] == pytest.approx(BASE_S * (1 + SCALING_RANGE))
    assert targets[2] == pytest.approx(BASE_S + 0.071 * SCALING_RANGE * BASE_S, rel=0.01)


def test_on_ack__a_mark_counts_as_a_quarter_over_the_target() -> None:
    loop = Loop(packets=120)
    before = loop.packets
    loop.round(0.0, marked=1.0)
    assert loop.packets == pytest.approx(before * (1 - 0.8 * 0.2), rel=0.02)
    before = loop.packets
    loop.round(0.0)
    assert loop.packets == pytest.approx(before + 1, rel=0.02)


def test_on_loss__halves_once_a_round_trip() -> None:
    loop = Loop(packets=40)
    before = loop.packets
    loop.now += RTT_S
    loop.control.on_loss(now=loop.now, lost_bytes=9000, inflight_bytes=0, by_timeout=False)
    loop.control.on_loss(now=loop.now + RTT_S / 2, lost_bytes=9000, inflight_bytes=0, by_timeout=False)
    assert loop.packets == pytest.approx(before / 2)


def test_on_all_paths_timeout__several_in_a_row_start_from_nothing() -> None:
    loop = Loop(packets=40)
    for _ in range(RESET_TIMEOUTS):
        loop.now += RTT_S
        loop.control.on_all_paths_timeout(now=loop.now)
    assert loop.packets == pytest.approx(MIN_WINDOW_PACKETS)
    loop.control.on_spurious_loss()
    assert loop.packets == pytest.approx(MIN_WINDOW_PACKETS)


def test_pacing__below_one_packet_the_window_is_the_pace() -> None:
    loop = Loop()
    assert loop.control.pacing_gain > 10
    while loop.packets >= 1:
        loop.round(1.0)
    assert math.isclose(loop.control.pacing_gain, 1.0)
    small = loop.packets
    loop.round(0.0)
    assert loop.packets == pytest.approx(small + 1)
