"""srd.proto.base.pacer: bursts keep the pace, with a small bucket."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srd.proto.base.pacer import Pacer

DEPTH_S = 0.001


def test_release_at__at_once_when_idle() -> None:
    pacer = Pacer(depth_s=DEPTH_S)
    assert pacer.release_at() < 10.0
    pacer.charge(1000, now=10.0, rate_bytes_per_s=1e9)
    assert pacer.release_at() < 10.0  # a debt of a microsecond is within the bucket's depth


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


def test_hold__no_release_before_and_no_catching_up_after() -> None:
    pacer = Pacer(depth_s=DEPTH_S)
    pacer.hold(until=11.0)
    assert pacer.release_at() == pytest.approx(11.0)
    pacer.hold(until=10.5)
    assert pacer.release_at() == pytest.approx(11.0)
    pacer.charge(1000, now=11.0, rate_bytes_per_s=1e6)
    assert pacer.release_at() == pytest.approx(11.001)
