from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srd.proto.paths.rtt import (
    MAX_LONG_RATIO,
    MAX_SHARED_MIN_S,
    MIN_WINDOW_S,
    SHARED_MIN_RTTS,
    SHARED_MIN_S,
    PeerRtt,
    RttEstimator,
)


def test_update__first_sample_replaces_the_initial_value() -> None:
    rtt = RttEstimator(initial_s=0.05)
    assert (rtt.sampled, rtt.min_s) == (False, math.inf)
    assert rtt.timeout_s(floor_s=0.01) == pytest.approx(0.05 + 4 * 0.025)
    rtt.update(0.008, now=10.0)
    assert (rtt.smoothed_s, rtt.variation_s, rtt.min_s, rtt.latest_s) == (0.008, 0.004, 0.008, 0.008)
    assert rtt.sampled_at == 10.0


def test_update__rfc6298_weights() -> None:
    rtt = RttEstimator(initial_s=0.05)
    rtt.update(0.008, now=10.0)
    rtt.update(0.016, now=10.1)
    assert rtt.variation_s == pytest.approx(0.75 * 0.004 + 0.25 * 0.008)
    assert rtt.smoothed_s == pytest.approx(0.875 * 0.008 + 0.125 * 0.016)


def test_update__a_clock_of_microseconds_may_give_zero() -> None:
    rtt = RttEstimator(initial_s=0.05)
    rtt.update(0.0, now=10.0)
    assert rtt.sampled
    assert rtt.min_s > 0


def test_min_s__follows_a_route_that_became_longer() -> None:
    rtt = RttEstimator(initial_s=0.05)
    rtt.update(0.001, now=10.0)
    for step in range(1, 200):
        now = 10.0 + step * 0.1
        rtt.update(0.003, now=now)
        if now - 10.0 <= MIN_WINDOW_S / 2:
            assert rtt.min_s == 0.001
    assert rtt.min_s == 0.003


@given(st.lists(st.tuples(st.floats(1e-6, 10.0), st.floats(0.0, 3.0)), min_size=1, max_size=100))
def test_min_s__is_a_minimum_of_the_window(samples: list[tuple[float, float]]) -> None:
    """Never above any sample of the last half window, and always one of the samples."""
    rtt, now, seen = RttEstimator(initial_s=0.05), 10.0, []
    for sample, gap in samples:
        now += gap
        rtt.update(sample, now=now)
        seen.append((now, sample))
        assert rtt.min_s <= min(s for at, s in seen if at >= now - MIN_WINDOW_S / 2)
        assert rtt.min_s in [s for _, s in seen]


@pytest.mark.parametrize(("variation", "floor", "timeout"), [(0.004, 0.001, 0.024), (0.0001, 0.01, 0.018)])
def test_timeout_s__floor_bounds_the_variation(variation: float, floor: float, timeout: float) -> None:
    rtt = RttEstimator(initial_s=0.05)
    rtt.update(0.008, now=10.0)
    rtt.variation_s = variation
    assert rtt.timeout_s(floor_s=floor) == pytest.approx(timeout)


def paths(*round_trips_s: float, at: float) -> list[RttEstimator]:
    out = []
    for round_trip_s in round_trips_s:
        out.append(RttEstimator(initial_s=0.05))
        out[-1].update(round_trip_s, now=at)
    return out


def test_peer_rtt__of_the_paths_in_use() -> None:
    """Slow unused paths do not count; without a recent report, all count."""
    ours, (fast, slow) = PeerRtt(initial_s=0.01), paths(0.002, 0.02, at=10.0)
    fast.update(0.002, now=10.1)
    ours.refresh([fast, slow], now=10.101)
    assert ours.smoothed_s == pytest.approx(0.002)
    assert ours.refresh_at == pytest.approx(10.103)
    ours.refresh([fast, slow], now=10.5)
    assert ours.smoothed_s == pytest.approx(0.011)


def test_peer_rtt__of_a_long_path_is_refreshed_four_times_per_round_trip() -> None:
    ours = PeerRtt(initial_s=0.01)
    for rtt_s, after_s in ((0.1, 0.025), (0.012, 0.005), (0.004, 0.004)):
        (path,) = paths(rtt_s, at=10.0)
        ours.refresh([path], now=10.0)
        assert ours.refresh_at == pytest.approx(10.0 + after_s)


def test_peer_rtt__of_unsampled_paths_is_the_initial_value() -> None:
    ours = PeerRtt(initial_s=0.01)
    ours.refresh([RttEstimator(initial_s=0.05)], now=10.0)
    assert (ours.smoothed_s, ours.min_s) == (0.01, math.inf)


def test_peer_rtt__smallest_sample_of_any_path_within_the_window() -> None:
    ours = PeerRtt(initial_s=0.01)
    ours.observe(0.002, now=10.0)
    for step in range(1, 120):
        ours.observe(0.02, now=10.0 + step / 10)
        if step <= 5 * MIN_WINDOW_S:
            assert ours.min_s == 0.002
    assert ours.min_s == 0.02


def test_is_shared__at_first() -> None:
    ours, (short, long) = PeerRtt(initial_s=0.01), paths(0.002, 0.006, at=10.0)
    for path in (short, long):
        ours.observe(path.latest_s, now=10.0)
    assert all(ours.is_shared(path, unequal=False, now=10.0) for path in (short, long))
    assert ours.is_shared(long, unequal=False, now=10.0 + 0.99 * SHARED_MIN_S)
    assert not any(ours.is_shared(path, unequal=False, now=10.0 + 1.01 * SHARED_MIN_S) for path in (short, long))


def test_is_shared__of_paths_of_unequal_length_unless_a_queue_cannot_be_the_reason() -> None:
    ours, (short, queued, long) = PeerRtt(initial_s=0.01), paths(0.002, 0.0039, 0.0041, at=10.0)
    for path in (short, queued, long):
        ours.observe(path.latest_s, now=10.0)
    assert [ours.is_shared(path, unequal=True, now=10.0) for path in (short, queued, long)] == [True, True, False]
    assert not any(ours.is_shared(path, unequal=True, now=10.0 + 1.01 * SHARED_MIN_S) for path in (short, queued, long))


def test_is_shared__on_a_long_path_for_a_bounded_time() -> None:
    ours, (path,) = PeerRtt(initial_s=0.01), paths(0.5, at=10.0)
    ours.observe(path.latest_s, now=10.0)
    assert ours.is_shared(path, unequal=False, now=10.0)
    assert ours.is_shared(path, unequal=False, now=10.0 + 0.99 * MAX_SHARED_MIN_S)
    assert not ours.is_shared(path, unequal=False, now=10.0 + 1.01 * MAX_SHARED_MIN_S)


# -- short packets arrive sooner ------------------------------------------------------------------------------------


class Samples:
    """A path of a peer whose packets are short or long."""

    def __init__(self) -> None:
        self.peer, self.path = PeerRtt(initial_s=0.01), RttEstimator(initial_s=0.05)

    def add(self, sample_s: float, *, is_long: bool, now: float) -> float:
        """Return the smallest round trip of the path after a sample."""
        is_least = self.peer.takes(is_long=is_long, now=now)
        self.path.update(sample_s, now=now, is_least=is_least, least_since=self.peer.long_since)
        return self.path.min_s


def test_takes__while_long_packets_are_sent_the_smallest_round_trip_is_theirs() -> None:
    ours = Samples()
    assert ours.add(0.0020, is_long=False, now=10.0) == 0.0020
    assert ours.add(0.0030, is_long=True, now=10.1) == 0.0030
    assert ours.add(0.0020, is_long=False, now=10.2) == 0.0030
    assert ours.add(0.0029, is_long=True, now=10.3) == 0.0029
    assert ours.path.latest_s == 0.0029


def test_takes__short_packets_again_once_there_are_only_those() -> None:
    ours = Samples()
    ours.add(0.0030, is_long=True, now=10.0)
    assert ours.add(0.0020, is_long=False, now=10.0 + 0.9 * MIN_WINDOW_S) == 0.0030
    assert ours.add(0.0021, is_long=False, now=10.0 + MIN_WINDOW_S) == 0.0021
    assert ours.add(0.0030, is_long=True, now=10.1 + MIN_WINDOW_S) == 0.0030


def test_takes__a_path_that_had_short_packets_only_has_their_minimum_until_it_has_a_long_one() -> None:
    """Another path of the peer has long ones; the minimum is never infinite once there is a sample."""
    ours = Samples()
    ours.peer.takes(is_long=True, now=10.0)
    assert ours.add(0.0020, is_long=False, now=10.1) == 0.0020
    assert ours.add(0.0029, is_long=True, now=10.2) == 0.0029


def test_takes__a_long_packet_that_must_have_waited_in_a_queue_replaces_nothing() -> None:
    ours = Samples()
    ours.add(0.0020, is_long=False, now=10.0)
    assert ours.add(1.01 * MAX_LONG_RATIO * 0.0020, is_long=True, now=10.1) == 0.0020
    assert ours.add(0.0026, is_long=True, now=10.2) == 0.0026


def test_is_shared__longer_where_a_path_is_longer() -> None:
    ours, (short, long) = PeerRtt(initial_s=0.01), paths(0.001, 0.009, at=10.0)
    ours.observe(short.latest_s, now=10.0)
    ours.refresh([short, long], now=10.0)
    assert ours.is_shared(short, unequal=False, now=10.0)
    assert ours.is_shared(short, unequal=False, now=10.0 + 0.99 * SHARED_MIN_RTTS * 0.009)
    assert not ours.is_shared(short, unequal=False, now=10.0 + 1.01 * SHARED_MIN_RTTS * 0.009)


def test_refresh__spread_is_that_of_the_base_round_trips() -> None:
    ours, made = PeerRtt(initial_s=0.01), paths(0.002, 0.0039, 0.0041, at=10.0)
    made[0].update(0.009, now=10.0)
    ours.refresh(made, now=10.0)
    assert ours.spread_s == pytest.approx(0.0021)
    ours.refresh([], now=10.1)
    assert ours.spread_s == pytest.approx(0.0021)
