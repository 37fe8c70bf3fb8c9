"""netns.base.units: every unit, and nothing but UnitError for anything else."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netns.base.units import UnitError, parse_count, parse_duration_us, parse_percent, parse_rate_bps, parse_size


@pytest.mark.parametrize(
    ("text", "us"),
    [
        ("0.5ms", 500), ("100us", 100), ("100 usecs", 100), ("2s", 2e6), ("1sec", 1e6), ("1.5MS", 1500),
        ("250ns", 0.25), ("1e1ms", 10_000), (".5ms", 500), ("0", 0), (0, 0), ("0.1ms", 100),
        ("5min", 3e8), ("1.5h", 5.4e9), ("1d", 86_400e6), ("-1s", -1e6),
    ],
)  # fmt: skip
def test_parse_duration_us(text: str | float, us: float) -> None:
    assert parse_duration_us(text) == us


@pytest.mark.parametrize("text", ["5", 5, "ms", "", "5 ms or so", "5m", True, None, "1e999ms", "nan", "inf"])
def test_parse_duration_us__bad_flow(text: str | float) -> None:
    with pytest.raises(UnitError, match=r"\(for example 0.5ms\)") as caught:
        parse_duration_us(text)
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
    with pytest.raises(UnitError, match=r"rate|number"):
        parse_rate_bps(text)


@pytest.mark.parametrize(("text", "percent"), [("1%", 1), ("0.1%", 0.1), ("1", 1), (2.5, 2.5), ("120%", 120)])
def test_parse_percent(text: str | float, percent: float) -> None:
    assert parse_percent(text) == percent


@pytest.mark.parametrize("text", ["1ms", "one", "1%%", None])
def test_parse_percent__bad_flow(text: str) -> None:
    with pytest.raises(UnitError, match=r"percentage|number"):
        parse_percent(text)


@given(st.text() | st.floats() | st.integers() | st.none() | st.booleans())
def test_parsers_raise_nothing_but_unit_error(value: str | float) -> None:
    for parse in (parse_duration_us, parse_rate_bps, parse_percent, parse_size, parse_count):
        with suppress(UnitError):
            assert parse(value) == parse(str(value))


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("512", 512), (512, 512), ("0", 0), ("4k", 4096), ("4K", 4096), ("256M", 256 << 20), ("1.5G", 3 << 29),
        ("1.5 GiB", 3 << 29), ("2T", 2 << 40), ("1P", 1 << 50), ("100KB", 100_000), ("1MB", 10**6), ("7B", 7),
        ("0.1K", 102),
    ],
)  # fmt: skip
def test_parse_size(text: str | float, size_bytes: int) -> None:
    assert parse_size(text) == size_bytes


@pytest.mark.parametrize("text", ["", "M", "-1", "1X", "256m1", "0x10", "\u0667", "1" * 200, None, True])
def test_parse_size__bad_flow(text: str) -> None:
    with pytest.raises(UnitError, match=r"\(for example 256M\)"):
        parse_size(text)


@pytest.mark.parametrize(("text", "count"), [("5000", 5000), (7, 7), ("100K", 100_000), ("1.5M", 1_500_000)])
def test_parse_count(text: str | float, count: int) -> None:
    assert parse_count(text) == count


@pytest.mark.parametrize("text", ["1.5", "1X", "", "100Ki", None, False])
def test_parse_count__bad_flow(text: str) -> None:
    with pytest.raises(UnitError, match=r"\(for example 100K\)"):
        parse_count(text)
