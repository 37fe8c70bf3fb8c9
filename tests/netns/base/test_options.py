"""netns.base.options: amounts within bounds, HOST:PORT, and one line for anything else."""

from __future__ import annotations

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netns.base.options import Duration, HostPort, Rate, Size

ADDRESS = HostPort(example_port=19870)


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
    ],
)
def test_host_port__reads(text: str, wanted: tuple[str, int]) -> None:
    assert ADDRESS.convert(text, None, None) == wanted
    assert ADDRESS.convert(wanted, None, None) == wanted


@pytest.mark.parametrize(
    ("text", "wanted"),
    [("0", 0), ("512", 512), ("4k", 4096), ("256M", 256 << 20), ("1.5G", 3 << 29), ("2TiB", 2 << 40)],
)
def test_size__reads(text: str, wanted: int) -> None:
    assert Size().convert(text, None, None) == wanted
    assert Size().convert(wanted, None, None) == wanted


@pytest.mark.parametrize("text", ["", "M", "-1", "1X", "0x10", "\u0667", "1" * 200], ids=ascii)
def test_size__bad_flow(text: str) -> None:
    with pytest.raises(click.BadParameter) as caught:
        Size().convert(text, None, None)
    assert text in caught.value.message
    assert "(for example 256M)" in caught.value.message


@pytest.mark.parametrize(
    ("text", "message"), [("3", "3 is too small; at least 4"), ("1K", "1K is too large; at most 9")]
)
def test_size__out_of_range_bad_flow(text: str, message: str) -> None:
    with pytest.raises(click.BadParameter, match=message):
        Size(least=4, most=9).convert(text, None, None)


@pytest.mark.parametrize(("text", "wanted"), [("0", 0), ("90s", 90), ("1.5min", 90), ("1ms", 0.001), ("24h", 86400)])
def test_duration__reads(text: str, wanted: float) -> None:
    assert Duration(most_s=86400).convert(text, None, None) == wanted


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("60", "60 is not a time: give a unit"),
        ("-1s", "-1s is too short; at least 0 s"),
        ("2d", "2d is too long; at most 86400 s"),
    ],
)
def test_duration__bad_flow(text: str, message: str) -> None:
    with pytest.raises(click.BadParameter) as caught:
        Duration(most_s=86400).convert(text, None, None)
    assert message in caught.value.message


NOT_HOST_PORT = [
    *("", "host", "host:", "host:x", "host:-1", "host:65536", "host:19870 ", "host: 19870", "host:+7", "host:0x1"),
    *("host:1_0", "host:1e3", "host:\u0667", "host:\u00b2", "[::1]", "::1", "192.0.2.1:19870:", "h:" + "1" * 5000),
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


@pytest.mark.parametrize(("text", "wanted"), [("3", 3), ("0.5", 0.5), ("500ms", 0.5), ("1e1", 10), ("0", 0)])
def test_duration__a_bare_number_where_it_means_something(text: str, wanted: float) -> None:
    assert Duration(most_s=10, bare_s=1.0).convert(text, None, None) == wanted
    assert Duration(most_s=10).convert(0.5, None, None) == 0.5  # a default is a number of seconds


@pytest.mark.parametrize("text", ["nan", "inf", "-1", "1e400", "11"])
def test_duration__a_bare_number_bad_flow(text: str) -> None:
    with pytest.raises(click.BadParameter):
        Duration(most_s=10, bare_s=1.0).convert(text, None, None)


@pytest.mark.parametrize(("text", "wanted"), [("250mbit", 250e6), ("250M", 250e6), ("10MBps", 80e6), ("0", 0)])
def test_rate__reads(text: str, wanted: float) -> None:
    assert Rate().convert(text, None, None) == wanted


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1kbit", "1kbit is too slow; at least 1mbit"),
        ("11tbit", "11tbit is too fast; at most 10000000mbit"),
        ("1X", "1X is not a rate"),
    ],
)
def test_rate__bad_flow(text: str, message: str) -> None:
    with pytest.raises(click.BadParameter, match=message):
        Rate(least_bps=10**6, most_bps=10**13).convert(text, None, None)
