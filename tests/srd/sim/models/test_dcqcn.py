"""srd.sim.models.dcqcn: the rates after each event, by the paper's formulas."""

from __future__ import annotations

import math

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


def test_alpha__is_what_it_is_after_so_many_cuts_and_decays() -> None:
    """Section 3.1: a notification every 100 us, and between two of them one decay, as K is 55 us.

    So alpha is (1 - g)^2 alpha + g after each, whose solution is a + (1 - a) (1 - g)^2n with a = 1 / (2 - g).
    """
    rate, g = DcqcnRate(LINE_BPS), 1 / 256
    settled = 1 / (2 - g)
    for count in range(400):
        rate.handle_congestion(count * 100 * US)
        assert rate.alpha == pytest.approx(settled + (1 - settled) * (1 - g) ** (2 * count), rel=1e-9)


def test_recovery__from_1_gbps_to_the_line_takes_what_timer_and_byte_counter_say() -> None:
    """Section 3.1 in closed form; all that is sent counts, and nothing is marked.

    Five timer events later R_T rises by 40 Mbit/s every 55 us, which is R_AI / T a second, and R_C follows one event
    behind, which is the average of the two. The byte counter adds R_AI every 10 MB, and with its sixth event hyper
    increase begins: at 60 MB, from the area below that line, R_C has the value below. Then R_T rises by 400 Mbit/s
    every 55 us, as long as the byte counter is at six.
    """
    ai_bps, hai_bps, timer_s, counter_bits, start_bps = 40e6, 400e6, 55e-6, 80e6, 1e9
    sent_bits = 6 * counter_bits
    slope = ai_bps / timer_s
    fast_s = 4 * timer_s
    hyper_s = fast_s + (math.sqrt(start_bps**2 + 2 * slope * (sent_bits - start_bps * fast_s)) - start_bps) / slope
    hyper_bps = start_bps + slope * (hyper_s - fast_s) + 6 * ai_bps
    expected_s = hyper_s + (LINE_BPS - hyper_bps) / hai_bps * timer_s
    rate = DcqcnRate(LINE_BPS)
    rate.bps, rate.alpha = start_bps, 0.0
    rate.handle_congestion(0)  # with such an alpha it cuts nothing, and starts timer and counter
    now_s, packet_bytes = 0.0, 4_154
    while rate.target_bps < LINE_BPS:
        rate.handle_sent(packet_bytes, round(now_s * 1e9))
        now_s += packet_bytes * 8 / rate.bps
    assert now_s == pytest.approx(expected_s, rel=0.01)


@pytest.mark.parametrize("timers", [5.02, 5.5, 5.98])
def test_rate__settles_where_section_3_1_does_for_notifications_at_equal_intervals(timers: float) -> None:
    """Five timer events and five decays of alpha lie between two notifications.

    Alpha settles at a = (1 - g)^5 g / (1 - (1 - g)^6) before each. A cut takes R_C a / 2 from the target's R_T = R_C.
    Four events halve that distance, the fifth adds R_AI to R_T and halves what there is then. If R_C is as before, R_T
    is R_AI above it: R_C a / 2 / 32 + R_AI / 2 = R_AI.
    """
    g, additive_bps = 1 / 256, 40e6
    alpha = (1 - g) ** 5 * g / (1 - (1 - g) ** 6)
    interval_ns, rate = round(timers * 55 * US), DcqcnRate(LINE_BPS)
    for count in range(8_000):
        rate.handle_congestion(count * interval_ns)
    rate.advance(8_000 * interval_ns - 1)
    assert rate.alpha == pytest.approx(alpha, rel=1e-6)
    assert rate.bps == pytest.approx(32 * additive_bps / alpha, rel=1e-4)
