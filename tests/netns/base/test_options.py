"""netns.base.options: amounts within bounds, HOST:PORT, and one line for anything else."""

from __future__ import annotations

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netns.base.options import Duration, HostPort, Rate, Size

ADDRESS = HostPort(default_port=19870)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("192.0.2.1:19870", ("192.0.2.1", 19870)),
        ("host.example:0", ("host.example", 0)),
        ("host:65535", ("host", 65535)),
        ("[::1]:19870", ("::1", 19870)),
        ("[fe80::1%eth0]:19870", ("fe80::1%eth0", 19870)),
        ("[::]:1", ("::", 1)),
        (":19870", ("", 19870)),
        ("localhost:0007", ("localhost", 7)),
        ("host", ("host", 19870)),
        ("192.0.2.1", ("192.0.2.1", 19870)),
        ("::1", ("::1", 19870)),
        ("[::1]", ("::1", 19870)),
        ("fe80::1%eth0", ("fe80::1%eth0", 19870)),
    ],
)
def test_host_port__reads(text: str, wanted: tuple[str, int]) -> None:
    assert ADDRESS.convert(text, None, None) == wanted
    assert ADDRESS.convert(wanted, None, None) == wanted


TEN = Duration(most_s=10)


@pytest.mark.parametrize(
    ("kind", "text", "wanted"),
    [
        (Size(), "256M", 256 << 20),
        (Size(), 512, 512),  # a number is one already, as defaults are
        (Duration(most_s=86400), "1.5min", 90),
        (Duration(most_s=86400), "24h", 86400),
        (Duration(most_s=10), 0.5, 0.5),
        (TEN, "3", 3),
        (TEN, "500ms", 0.5),
        (TEN, "1e1", 10),
        (Size(), "512", 512),
        (Rate(), "1000", 1000),
        (Rate(), "250mbit", 250e6),
        (Rate(), "250M", 250e6),
        (Rate(), "10MBps", 80e6),
    ],
)
def test_amounts__read(kind: click.ParamType[float], text: str | float, wanted: float) -> None:
    """The notation itself is that of netns.base.units."""
    assert kind.convert(text, None, None) == wanted


@pytest.mark.parametrize(
    ("kind", "text", "message"),
    [
        (Size(), "1X", "1X is not a size"),
        (Size(least=4, most=9), "3", "3 is too small; at least 4"),
        (Size(least=4, most=9), "1K", "1K is too large; at most 9"),
        (Duration(most_s=86400), "6x", "6x is not a time: give a unit"),
        (Duration(most_s=86400), "-1s", "-1s is too short; at least 0 s"),
        (Duration(most_s=86400), "2d", "2d is too long; at most 86400 s"),
        *((TEN, text, "") for text in ("nan", "inf", "-1", "1e400", "11")),
        (Rate(least_bps=10**6), "1kbit", "1kbit is too slow; at least 1mbit"),
        (Rate(most_bps=10**13), "11tbit", "11tbit is too fast; at most 10000000mbit"),
        (Rate(), "1X", "1X is not a rate"),
    ],
)
def test_amounts__bad_flow(kind: click.ParamType[float], text: str, message: str) -> None:
    with pytest.raises(click.BadParameter) as caught:
        kind.convert(text, None, None)
    assert message in caught.value.message


NOT_HOST_PORT = [
    *("", "19870", "host:", "host:x", "host:-1", "host:65536", "host:19870 ", "host: 19870", "host:+7", "host:0x1"),
    *("host:1_0", "host:1e3", "host:\u0667", "host:\u00b2", "[::1", "[host]", "192.0.2.1:19870:", "h:" + "1" * 5000),
]


@pytest.mark.parametrize("text", NOT_HOST_PORT, ids=lambda text: ascii(text)[:20])
def test_host_port__bad_flow(text: str) -> None:
    with pytest.raises(click.BadParameter) as caught:
        ADDRESS.convert(text, None, None)
    assert "\n" not in caught.value.message
    assert repr(text)[:60] in caught.value.message


@pytest.mark.parametrize("text", ["::1:19870", "fe80::1:19870", "[::1:19870", "::1]:19870", "a:b:1"])
def test_host_port__ipv6_without_brackets_bad_flow(text: str) -> None:
    with pytest.raises(click.BadParameter, match=r"put an IPv6 address in brackets, such as \[::1\]:19870"):
        ADDRESS.convert(text, None, None)


@given(text=st.text(max_size=30))
def test_host_port__anything_is_read_or_refused(text: str) -> None:
    try:
        _, port = ADDRESS.convert(text, None, None)
    except click.BadParameter:
        return
    assert 0 <= port <= 65535
