from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netns.errors import ShapeError
from netns.netem.params import MAX_JITTER_US, FourStates, GilbertElliott, Slot
from netns.netem.shape import MAX_DELAY_US, Shape, limit_for

KEYS = (
    "delay, jitter, distribution, loss, duplicate, corrupt, reorder, gap, rate, trace, limit, slot, ecn, seed, "
    "ce_threshold"
)

shapes = st.builds(
    Shape,
    delay_us=st.floats(0, MAX_DELAY_US),
    jitter_us=st.floats(0, MAX_JITTER_US),
    loss_percent=st.floats(0, 100),
    rate_bps=st.integers(8, 2**40),
    limit_packets=st.integers(1, 2**32 - 1),
    ce_threshold_us=st.none() | st.floats(0, MAX_DELAY_US),
    seed=st.none() | st.integers(0, 2**64 - 1),
)


@pytest.mark.parametrize(
    ("mapping", "message"),
    [
        ({"loss": "120%"}, "loss: 120 % is not between 0 % and 100 %"),
        ({"loss": "-1%"}, "loss: -1 % is not between 0 % and 100 %"),
        ({"delay": "5"}, "delay: 5 is not a time: give a unit, one of d, h, min, s, ms, us, ns (for example 0.5ms)"),
        ({"delay": "1e6s"}, f"delay: 1000000000000 us is not between 0 us and {MAX_DELAY_US} us"),
        ({"jitter": "3s"}, f"jitter: 3000000 us is not between 0 us and {MAX_JITTER_US} us"),
        ({"rate": "5bit"}, "rate: 5 bit/s is less than 8 bit/s (0 is unlimited)"),
        ({"rate": "-5mbit"}, "rate: -5000000 bit/s is not between 0 bit/s and 147573952589676412920 bit/s"),
        ({"limit": 0}, "limit: 0 packets is not between 1 packets and 4294967295 packets"),
        ({"limit": "9"}, "limit: '9' is not an integer"),
        ({"limit": 1.5}, "limit: 1.5 is not an integer"),
        ({"ce_threshold": "9us"}, "ce_threshold: nothing waits on a link without a rate, so give one"),
        ({"ce_threshold": "-9us", "rate": "1gbit"}, f"ce_threshold: -9 us is not between 0 us and {MAX_DELAY_US} us"),
        ({"seed": True}, "seed: True is not an integer"),
        ({"seed": -1}, "seed: -1 is not between 0 and 18446744073709551615"),
        (
            {"dealy": "1ms"},
            "dealy: no such property of a link; did you mean delay?",
        ),
        ({"zzz": 1}, f"zzz: no such property of a link; the known ones are {KEYS}"),
        ({"delay": "1ms 2ms", "jitter": "1ms"}, "jitter: jitter is given already; give it once"),
        ({"duplicate": "101%"}, "duplicate: 101 % is not between 0 % and 100 %"),
        ({"corrupt": "1% 101%"}, "corrupt: correlation: 101 % is not between 0 % and 100 %"),
        ({"distribution": "pareto"}, "distribution: pareto of a jitter of 0 is nothing; give a jitter"),
        (
            {"reorder": "5%"},
            "reorder: needs a delay: a packet is reordered by not being delayed as the others are",
        ),
        ({"ecn": True}, "ecn: marks what would be lost, so give a loss"),
        ({"ecn": "si", "loss": "1%"}, "ecn: 'si' is neither true nor false"),
        ({"rate": "0bit 20"}, "rate: overhead and cells need a rate"),
        (
            {"rate": "1mbit 0 53 -54"},
            "rate: a cell of 53 bytes with an overhead of -54 is less than 0",
        ),
        ({"gap": -1}, "gap: -1 packets is not between 0 packets and 4294967295 packets"),
        ("1ms", "'1ms' is not a shape: want keys out of " + KEYS),
    ],
)  # fmt: skip
def test_parse__bad_flow(mapping: Any, message: str) -> None:
    with pytest.raises(ShapeError) as caught:
        Shape.parse(mapping)
    assert str(caught.value) == message


@pytest.mark.parametrize("value", [math.nan, math.inf, -0.1, "1", None, True])
def test_shape__validates_values_from_python(value: Any) -> None:
    with pytest.raises(ShapeError, match=r"^delay: "):
        Shape(delay_us=value)


def test_changed__a_loss_replaces_a_model_and_the_other_way_round() -> None:
    model = Shape().changed({"loss": "gemodel 1% 10%"})
    assert model.loss_model == GilbertElliott(1, 10)
    assert model.changed({"loss": "2%"}) == Shape(loss_percent=2)
    assert Shape(loss_percent=2).changed({"loss": "gemodel 1% 10%"}) == model


def test_changed__a_rate_replaces_a_trace_and_forgets_the_cells(tmp_path: Path) -> None:
    (tmp_path / "up.trace").write_text("1\n2\n")
    traced = Shape(rate_bps=8000, rate_overhead_bytes=20).changed({"trace": "up.trace"}, base=tmp_path)
    assert traced == Shape(trace=str(tmp_path / "up.trace"))
    assert traced.limited
    assert traced.changed({"rate": "8kbit"}) == Shape(rate_bps=8000)


def test_trace_beside_a_rate_bad_flow() -> None:
    with pytest.raises(ShapeError, match=r"^trace: is given beside a rate"):
        Shape(trace="/x", rate_bps=8000)
    with pytest.raises(ShapeError, match=r"^loss: a percentage stands beside a model"):
        Shape(loss_percent=1, loss_model=GilbertElliott(1, 2))


def test_reorder__a_gap_alone_means_every_time() -> None:
    assert (Shape().reorder_gap, Shape().reorder_chance_percent) == (0, 0)
    alone = Shape(delay_us=1, gap=5)
    assert (alone.reorder_gap, alone.reorder_chance_percent) == (5, 100)
    both = Shape(delay_us=1, reorder_percent=25)
    assert (both.reorder_gap, both.reorder_chance_percent) == (1, 25)


@pytest.mark.parametrize(
    "shape",
    [
        Shape(loss_model=GilbertElliott(1, 10, 70, 0.1), slot=Slot(min_us=5, max_us=9, packets=3)),
        Shape(loss_model=FourStates(1, 90, 5, 50, 0.5), ecn=True),
    ],
)
def test_dict_round_trip__the_parts(shape: Shape) -> None:
    assert Shape.from_dict(json.loads(json.dumps(shape.to_dict()))) == shape


@given(shapes)
def test_dict_round_trip_through_json(shape: Shape) -> None:
    assert Shape.from_dict(json.loads(json.dumps(shape.to_dict()))) == shape


def test_from_dict__bad_flow() -> None:
    with pytest.raises(ShapeError, match=r"^a shape's part is not as it should be: .*'q'"):
        Shape.from_dict({"slot": {"q": 1}})
    with pytest.raises(ShapeError, match=r"^latency: no such field"):
        Shape.from_dict({"latency": 5})


def test_limit_for__counts_the_delay_line_the_buffer_and_the_packet_being_sent() -> None:
    # 250 Mbit/s x 0.5 ms = 15,625 B in flight, and as much again to wait: 31,250 B are 3.47 packets of 9,014 B.
    assert limit_for(rate_bps=250_000_000, delay_us=500, buffer_bytes=15_625, packet_bytes=9014) == 5
    assert limit_for(rate_bps=0, delay_us=500, buffer_bytes=0, packet_bytes=9014) == 1


@given(st.integers(8, 10**11), st.floats(0, 10**6), st.integers(0, 10**8), st.integers(64, 65_549))
def test_limit_for__never_cuts_into_the_buffer(rate: int, delay_us: float, buffer: int, packet: int) -> None:
    limit = limit_for(rate_bps=rate, delay_us=delay_us, buffer_bytes=buffer, packet_bytes=packet)
    in_flight_bytes = rate * delay_us / 8e6
    assert (limit - 1) * packet >= (in_flight_bytes + buffer) * (1 - 1e-9) - 1e-9
    assert (limit - 2) * packet <= in_flight_bytes + buffer
