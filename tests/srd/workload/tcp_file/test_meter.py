from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from srd.workload.tcp_file.meter import PROGRESS_INTERVAL_S, Meter


def test_meter__a_stall_lies_between_arrivals() -> None:
    meter = Meter()
    for now in (10.0, 10.1, 10.4, 10.5):
        meter.arrived(5, now=now)
    assert meter.byte_count == 20
    assert round(meter.longest_stall_s, 6) == 0.3
    assert round(meter.seconds(now=11.0), 6) == 1.0


def test_meter__before_the_first_byte_there_is_no_time() -> None:
    meter = Meter()
    assert not meter.started
    assert meter.seconds(now=99.0) == 0.0
    assert not meter.progress_due(now=99.0)


def test_meter__progress_is_due_once_an_interval_even_in_silence() -> None:
    meter = Meter()
    meter.arrived(1, now=5.0)
    assert meter.started
    assert meter.progress_due(now=5.0)
    assert not meter.progress_due(now=5.0 + PROGRESS_INTERVAL_S / 2)
    assert meter.progress_due(now=5.0 + PROGRESS_INTERVAL_S * 1.01)
    assert meter.progress_due(now=7.0)


@given(st.lists(st.floats(min_value=0, max_value=10), min_size=1))
def test_meter__longest_stall_is_the_largest_gap(gaps: list[float]) -> None:
    meter, now = Meter(), 100.0
    meter.arrived(1, now=now)
    longest = 0.0
    for gap in gaps:
        longest = max(longest, (now + gap) - now)
        now += gap
        meter.arrived(1, now=now)
    assert meter.longest_stall_s == longest
