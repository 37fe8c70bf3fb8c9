"""srd.sim.models.dcqcn: the rates after each event, by the paper's formulas."""

from __future__ import annotations

import pytest

from srd.sim.models.dcqcn import DcqcnConfig, DcqcnRate, FirmwareRate, Notifications

LINE_BPS = 40e9
US = 1_000


def test_a_cut_halves_the_rate_while_alpha_is_1_and_alpha_decays_every_55_us() -> None:
    rate = DcqcnRate(LINE_BPS)
    rate.handle_congestion(0)
    assert (rate.bps, rate.target_bps, rate.alpha) == (20e9, 40e9, 1.0)
    rate.advance(54 * US)
    assert rate.alpha == 1.0
    rate.advance(55 * US)
    assert rate.alpha == pytest.approx(255 / 256)
    rate.handle_congestion(60 * US)
    assert rate.alpha == pytest.approx(255 / 256 * 255 / 256 + 1 / 256)


def test_fast_recovery_halves_the_distance_five_times_then_the_target_rises_by_40_mbps() -> None:
    rate = DcqcnRate(LINE_BPS)
    rate.handle_congestion(0)
    rate.handle_congestion(1)  # target 20, rate 10
    for events, expected in ((1, 15e9), (2, 17.5e9), (3, 18.75e9), (4, 19.375e9)):
        rate.advance(events * 55 * US + 1)
        assert rate.bps == pytest.approx(expected)
        assert rate.target_bps == 20e9
    rate.advance(5 * 55 * US + 1)  # the fifth: no counter is below F any more
    assert rate.target_bps == pytest.approx(20e9 + 40e6)
    rate.advance(6 * 55 * US + 1)
    assert rate.target_bps == pytest.approx(20e9 + 80e6)


def test_hyper_increase_once_both_counters_are_beyond_five() -> None:
    config = DcqcnConfig(byte_counter_bytes=1_000)
    rate = DcqcnRate(LINE_BPS, config)
    rate.handle_congestion(0)
    rate.handle_congestion(1)
    for _ in range(6):
        rate.handle_sent(1_000, 2)
    target = rate.target_bps
    rate.advance(6 * 55 * US + 1)  # both counters are at six: one more step, of 400 Mbit/s
    assert rate.target_bps == pytest.approx(target + 5 * 40e6 + 400e6)


def test_the_target_never_exceeds_the_line() -> None:
    rate = DcqcnRate(LINE_BPS)
    rate.handle_congestion(0)
    rate.advance(10**9)
    assert rate.target_bps == LINE_BPS
    assert rate.bps == pytest.approx(LINE_BPS)


def test_one_notification_an_interval() -> None:
    notifications = Notifications(50.0)
    assert [notifications.due(at * US) for at in (0, 1, 49, 50, 51, 120)] == [True, False, False, True, False, True]


def test_firmware__cuts_once_a_monitor_period_and_keeps_the_target_between_rises() -> None:
    rate = FirmwareRate(LINE_BPS)
    rate.handle_congestion(0)
    assert (rate.bps, rate.target_bps) == (20e9, 40e9)
    for at in (1, 2, 3):
        rate.handle_congestion(at * US)
    assert rate.bps == 20e9
    rate.advance(4 * US)
    assert rate.bps == pytest.approx(20e9 * (1 - rate.alpha / 2), rel=0.01)
    assert rate.target_bps == 40e9
    cut = rate.bps
    rate.advance(304 * US)
    assert rate.bps == pytest.approx((cut + 40e9) / 2)
