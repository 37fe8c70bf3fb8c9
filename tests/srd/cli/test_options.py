"""srd.cli.options: HOST:PORT, file names that the system refuses, JSON lines, and signals."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from srd.cli.options import Duration, HostPort, Interrupted, Size, emit, is_directory, is_file, run


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
    assert HostPort().convert(text, None, None) == wanted
    assert HostPort().convert(wanted, None, None) == wanted


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
    [("60", "60 is not a time: give a unit"), ("-1s", "-1s is out of range"), ("2d", "2d is out of range")],
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
        HostPort().convert(text, None, None)
    assert "\n" not in caught.value.message
    assert repr(text)[:60] in caught.value.message


@pytest.mark.parametrize("text", ["::1:19870", "fe80::1:19870", "[::1:19870", "::1]:19870", "a:b:1"])
def test_host_port__ipv6_without_brackets_bad_flow(text: str) -> None:
    with pytest.raises(click.BadParameter, match=r"put an IPv6 address in brackets, such as \[::1\]:19870"):
        HostPort().convert(text, None, None)


@given(text=st.text(max_size=30))
def test_host_port__anything_is_read_or_refused(text: str) -> None:
    try:
        _, port = HostPort().convert(text, None, None)
    except click.BadParameter:
        return
    assert 0 <= port <= 65535


def test_is_file_and_is_directory__distinguish(tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.write_bytes(b"")
    assert (is_file(file), is_directory(file)) == (True, False)
    assert (is_file(tmp_path), is_directory(tmp_path)) == (False, True)
    for impossible in (tmp_path / "gone", tmp_path / ("x" * 300), file / "below"):
        assert (is_file(impossible), is_directory(impossible)) == (False, False)


def test_emit__one_line_of_json(capsys: pytest.CaptureFixture[str]) -> None:
    emit("sent", name="a\nb", bytes=7)
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    assert json.loads(out) == {"event": "sent", "name": "a\nb", "bytes": 7}


def test_run__returns_the_status() -> None:
    async def main() -> int:
        return 3

    assert run(main()) == 3


def test_run__raises_what_the_command_raises() -> None:
    async def main() -> int:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run(main())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_run__a_signal_cancels_and_the_command_cleans_up(number: signal.Signals) -> None:
    cleaned = []

    async def main() -> int:
        os.kill(os.getpid(), number)
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            cleaned.append(number)
        return 0

    with pytest.raises(Interrupted, match=f"stopped by {number.name}") as caught:
        run(main())
    assert cleaned == [number]
    assert caught.value.exit_code == 1


def test_run__a_command_may_handle_a_signal_as_its_end() -> None:
    async def main() -> int:
        os.kill(os.getpid(), signal.SIGTERM)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return 0
        return 1

    assert run(main()) == 0


def test_run__a_cancellation_without_a_signal_is_passed_on() -> None:
    async def main() -> int:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        run(main())
