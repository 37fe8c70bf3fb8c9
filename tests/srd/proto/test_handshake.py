"""Cookies, and the initiator's schedule."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srd.proto.control import Hello, decode_untrusted
from srd.proto.handshake import COOKIE_BYTES, COOKIE_LIFETIME_S, HELLOS_PER_SIZE, CookieJar, Initiator

JAR = CookieJar(secret=b"k" * 32)
ADDRESS = ("10.0.0.1", 4000)


def test_check__takes_what_make_made() -> None:
    cookie = JAR.make(address=ADDRESS, context=7, now=100.0)
    assert len(cookie) == COOKIE_BYTES
    assert JAR.check(cookie, address=ADDRESS, context=7, now=100.0)
    assert JAR.check(cookie, address=ADDRESS, context=7, now=100.0 + COOKIE_LIFETIME_S)


@pytest.mark.parametrize(
    ("address", "context", "now"),
    [
        (("10.0.0.2", 4000), 7, 100.0),
        (("10.0.0.1", 4001), 7, 100.0),
        (ADDRESS, 8, 100.0),
        (ADDRESS, 7, 100.0 + 2 * COOKIE_LIFETIME_S),
        (ADDRESS, 7, 100.0 - COOKIE_LIFETIME_S),  # from the future
    ],
    ids=["host", "port", "context", "too old", "too new"],
)
def test_check__cookie_is_bound(address: tuple[str, int], context: int, now: float) -> None:
    cookie = JAR.make(address=ADDRESS, context=7, now=100.0)
    assert not JAR.check(cookie, address=address, context=context, now=now)


def test_check__another_endpoints_key() -> None:
    cookie = CookieJar(secret=b"x" * 32).make(address=ADDRESS, context=7, now=100.0)
    assert not JAR.check(cookie, address=ADDRESS, context=7, now=100.0)


@given(bit=st.integers(0, COOKIE_BYTES * 8 - 1))
def test_check__any_bit_flipped(bit: int) -> None:
    cookie = bytearray(JAR.make(address=ADDRESS, context=7, now=100.0))
    cookie[bit // 8] ^= 1 << bit % 8
    assert not JAR.check(bytes(cookie), address=ADDRESS, context=7, now=100.0)


@given(st.binary(max_size=64))
def test_check__arbitrary_bytes(cookie: bytes) -> None:
    assert not JAR.check(cookie, address=ADDRESS, context=7, now=100.0)


def initiator(*sizes: int) -> Initiator:
    limits = {"credit_bytes": 99, "max_message_bytes": 88}
    return Initiator(own_context=5, **limits, sizes=sizes, now=10.0, interval_s=0.05, timeout_s=1.0)


def hello_at(ours: Initiator, now: float) -> Hello | None:
    data = ours.poll_hello(now=now)
    if data is None:
        return None
    hello = decode_untrusted(data)
    assert isinstance(hello, Hello)
    return hello


def test_poll_hello__falls_to_smaller_sizes_after_two_silences_each() -> None:
    ours = initiator(8972, 1472, 1200)
    sizes, now = [], 10.0
    for _ in range(8):
        hello = hello_at(ours, now)
        assert hello is not None
        assert hello_at(ours, now) is None  # once
        assert ours.wake_at == pytest.approx(now + 0.05)
        sizes.append(hello.datagram_bytes)
        now = ours.send_at
    assert HELLOS_PER_SIZE == 2
    assert sizes == [8972, 8972, 1472, 1472, 1200, 1200, 1200, 1200]


def test_poll_hello__names_context_and_credit() -> None:
    assert hello_at(initiator(600), 10.0) == Hello(
        own_context=5, credit_bytes=99, max_message_bytes=88, datagram_bytes=600
    )


@pytest.mark.parametrize(("hellos", "size"), [(1, 8972), (2, 8972), (3, 1472), (4, 1472)])
def test_retry__asks_at_once_at_the_size_that_was_answered(hellos: int, size: int) -> None:
    ours, now = initiator(8972, 1472), 10.0
    for _ in range(hellos):
        hello_at(ours, now)
        now = ours.send_at
    ours.retry(b"cookie", now=now - 0.04)
    hello = hello_at(ours, now - 0.04)
    assert hello is not None
    assert (hello.datagram_bytes, hello.cookie) == (size, b"cookie")
    assert ours.poll_hello(now=now - 0.04) is None


def test_retry__a_repeated_cookie_changes_nothing() -> None:
    """A duplicate in the network must not make us send without pause."""
    ours = initiator(8972)
    hello_at(ours, 10.0)
    ours.retry(b"cookie", now=10.001)
    hello_at(ours, 10.001)
    ours.retry(b"cookie", now=10.002)
    assert hello_at(ours, 10.002) is None


def test_wake_at__is_never_after_giving_up() -> None:
    ours = initiator(8972)
    ours.send_at = 12.0
    assert ours.wake_at == ours.give_up_at == 11.0
