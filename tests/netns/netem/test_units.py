from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netns.errors import ShapeError
from netns.netem.units import parse_percent, parse_rate_bps, parse_time_us


@pytest.mark.parametrize(
    ("text", "us"),
    [
        ("0.5ms", 500), ("100us", 100), ("100 usecs", 100), ("2s", 2e6), ("1sec", 1e6), ("1.5MS", 1500),
        ("250ns", 0.25), ("1e1ms", 10_000), (".5ms", 500), ("0", 0), (0, 0), ("0.1ms", 100),
    ],
)  # fmt: skip
def test_parse_time_us(text: str | float, us: float) -> None:
    assert parse_time_us(text) == us


@pytest.mark.parametrize("text", ["5", 5, "ms", "", "5 ms or so", "5min", True, None, "1e999ms", "nan", "inf"])
def test_parse_time_us__bad_flow(text: str | float) -> None:
    with pytest.raises(ShapeError, match=r"\(for example 0.5ms\)") as caught:
        parse_time_us(text)
    assert str(text) in str(caught.value)


@pytest.mark.parametrize(
    ("text", "bps"),
    [
        ("250mbit", 250_000_000), ("1gbit", 10**9), ("1.5Kbit", 1500), ("64kibit", 65536), ("1Mibit", 2**20),
        ("1MBps", 8_000_000), ("1mbps", 8_000_000), ("1KiBps", 8192), ("3bps", 24), ("9600", 9600), (9600, 9600),
        ("10bit", 10), ("1tbit", 10**12), ("0", 0),
    ],
)  # fmt: skip
def test_parse_rate_bps__has_the_meaning_of_tc(text: str | float, bps: int) -> None:
    assert parse_rate_bps(text) == bps


@pytest.mark.parametrize("text", ["5 apples", "mbit", "1 m", "5%", False, [1]])
def test_parse_rate_bps__bad_flow(text: str) -> None:
    with pytest.raises(ShapeError, match=r"rate|number"):
        parse_rate_bps(text)


@pytest.mark.parametrize(("text", "percent"), [("1%", 1), ("0.1%", 0.1), ("1", 1), (2.5, 2.5), ("120%", 120)])
def test_parse_percent(text: str | float, percent: float) -> None:
    assert parse_percent(text) == percent


@pytest.mark.parametrize("text", ["1ms", "one", "1%%", None])
def test_parse_percent__bad_flow(text: str) -> None:
    with pytest.raises(ShapeError, match=r"percentage|number"):
        parse_percent(text)


@given(st.text() | st.floats() | st.integers() | st.none() | st.booleans())
def test_parsers_raise_nothing_but_shape_error(value: str | float) -> None:
    for parse in (parse_time_us, parse_rate_bps, parse_percent):
        with suppress(ShapeError):
            assert parse(value) == parse(str(value))
