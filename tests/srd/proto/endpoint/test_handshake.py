"""Cookies, and the initiator's schedule."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srd.proto.config import ProtocolConfig
from srd.proto.endpoint.handshake import (
    COOKIE_BYTES,
    COOKIE_LIFETIME_S,
    HELLOS_PER_SIZE,
    MAX_SIZES,
    MAX_USED_COOKIES,
    MAX_USED_OF_HOST,
    MIN_RTT_S,
    CookieJar,
    PeerOpening,
    is_translated,
    source_digest,
)
from srd.proto.wire.control import Hello, Retry
from srd.proto.wire.data import Address

JAR = CookieJar(secret=b"k" * 32)
ADDRESS = ("10.0.0.1", 4000)
HELLO = Hello(
    own_context=5, credit_bytes=99, credit_messages=55, max_message_bytes=88, window_packets=77, datagram_bytes=600
)


def test_check__accepts_what_make_returns() -> None:
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


@given(bit=st.integers(0, COOKIE_BYTES * 8 - 1))
def test_check__any_bit_flipped(bit: int) -> None:
    cookie = bytearray(JAR.make(address=ADDRESS, context=7, now=100.0))
    cookie[bit // 8] ^= 1 << bit % 8
    assert not JAR.check(bytes(cookie), address=ADDRESS, context=7, now=100.0)


def test_spend__once_while_a_cookie_is_valid() -> None:
    """And no longer: their lifetime bounds the memory for spent cookies."""
    jar = CookieJar(secret=b"k" * 32)
    spent = [jar.make(address=ADDRESS, context=7, now=now) for now in (100.0, 110.0, 120.0)]
    at = zip(spent, (100.0, 110.0, 120.0), strict=True)
    assert [jar.spend(cookie, address=ADDRESS, now=now) for cookie, now in at] == [False] * 3
    assert jar.used_count == 2, "the first has expired"
    assert [jar.spend(cookie, address=ADDRESS, now=129.9) for cookie in spent[1:]] == [True] * 2
    assert not jar.is_full(ADDRESS, now=150.0)
    assert jar.used_count == 0
    assert not jar._hosts


def test_spend__one_host_leaves_room_for_others() -> None:
    jar = CookieJar(secret=b"k" * 32)
    for context in range(MAX_USED_OF_HOST):
        assert not jar.is_full(ADDRESS, now=100.0)
        cookie = jar.make(address=ADDRESS, context=context, now=100.0)
        assert not jar.spend(cookie, address=ADDRESS, now=100.0)
    assert jar.is_full((ADDRESS[0], 1), now=100.0), "whatever its port"
    assert not jar.is_full(("192.0.2.99", 7), now=100.0)
    assert jar.used_count < MAX_USED_COOKIES
    assert not jar.is_full(ADDRESS, now=130.0)


CONFIG = ProtocolConfig(
    paths=3,
    receive_window_bytes=99,
    receive_window_messages=55,
    max_message_bytes=88,
    window_packets=77,
    initial_rtt_s=0.05,
    handshake_timeout_s=1.0,
)


def initiator(*sizes: int) -> PeerOpening:
    return PeerOpening(1, address="b:0", own_context=5, config=CONFIG, sizes=sizes, now=10.0)


def poll(ours: PeerOpening, *, now: float) -> Hello:
    """Return the HELLO that is due."""
    hello = ours.poll_hello(now=now)
    assert hello is not None
    return hello


def sent(ours: PeerOpening, *, hellos: int) -> tuple[list[Hello], float]:
    """Leave `hellos` HELLOs unanswered; return them, and when the next is due."""
    return [poll(ours, now=ours.send_at) for _ in range(hellos)], ours.send_at


def test_poll_hello__falls_back_to_smaller_sizes_after_some_timeouts_each() -> None:
    ours, now = initiator(8972, 1472, 1200), 10.0
    sizes = []
    for _ in range(14):
        sizes.append(poll(ours, now=now).datagram_bytes)
        assert ours.poll_hello(now=now) is None  # once
        assert ours.wake_at == pytest.approx(min(now + 0.05, 11.0))
        now = ours.send_at
    assert HELLOS_PER_SIZE == 4
    assert sizes == [8972] * 4 + [1472] * 4 + [1200] * 6


def test_poll_hello__the_interval_doubles_after_each_twenty_up_to_its_limit() -> None:
    """20 x 50 ms, 20 x 100 ms, 20 x 200 ms, then 400 ms: some 70 in the 10 s of an attempt."""
    ours, intervals = PeerOpening(1, address="b:0", own_context=5, config=ProtocolConfig(), sizes=(8972,), now=10.0), []
    while ours.send_at < ours.give_up_at:
        now = ours.send_at
        poll(ours, now=now)
        intervals.append(ours.send_at - now)
    assert ours.give_up_at == 20.0
    assert intervals == pytest.approx([0.05] * 20 + [0.1] * 20 + [0.2] * 20 + [0.4] * 8)


def test_poll_hello__an_answer_does_not_restore_the_first_interval() -> None:
    """An attempt that many lost HELLOs have made long stays cheap."""
    ours = initiator(8972)
    _, now = sent(ours, hellos=20)
    ours.retry(Retry(5, b"cookie", path=1, size_bytes=8972), now=now)
    assert ours.poll_hello(now=now) is not None
    assert ours.send_at == pytest.approx(now + 0.1)


@pytest.mark.parametrize(
    ("hellos", "sizes"),
    [
        (0, [8972] * 4 + [1472] * 4 + [1200] * 4 + [772] * 2),
        (6, [1472] * 2 + [1200] * 4 + [772] * 2),
        (14, [772] * 2),
    ],
)
def test_add_size__is_tried_after_the_larger_ones(hellos: int, sizes: list[int]) -> None:
    ours = initiator(8972, 1472, 1200)
    sent(ours, hellos=hellos)
    ours.add_size(772)
    found, _ = sent(ours, hellos=len(sizes))
    assert [hello.datagram_bytes for hello in found] == sizes


def test_add_size__a_larger_one_than_the_present_is_tried_next() -> None:
    ours = initiator(8972, 1472, 1200)
    sent(ours, hellos=9)
    ours.add_size(2000)
    found, _ = sent(ours, hellos=13)
    assert [hello.datagram_bytes for hello in found] == [2000] * 4 + [1472] * 4 + [1200] * 5


def test_add_size__what_anybody_may_have_sent_is_bounded() -> None:
    ours = initiator(8972, 1472, 1200)
    for size_bytes in (-28, 0, 575, 1472, 8972, 65_507, *range(600, 1100, 10)):
        ours.add_size(size_bytes)
    found, _ = sent(ours, hellos=4 * MAX_SIZES + 1)
    assert list(dict.fromkeys(hello.datagram_bytes for hello in found)) == [8972, 1472, 1200, 640, 630, 620, 610, 600]
    assert MAX_SIZES == 8


# -- a NAT on the way --------------------------------------------------------------------------------------------------

ADDRESSES = st.tuples(st.one_of(st.ip_addresses(v=4).map(str), st.ip_addresses(v=6).map(str)), st.integers(1, 65_535))


@given(ADDRESSES, ADDRESSES, st.integers(0, 2**64 - 1))
def test_is_translated__whether_both_ends_know_the_same_address(
    known: tuple[str, int], seen: tuple[str, int], context: int
) -> None:
    packet = replace(HELLO, own_context=context, source_digest=source_digest(known, context=context))
    assert is_translated(packet, seen) is (known != seen)
    assert not is_translated(packet, known)


@pytest.mark.parametrize(
    ("known", "seen"),
    [
        (("192.0.2.7", 5), ("::ffff:192.0.2.7", 5, 0, 0)),
        (("::ffff:192.0.2.7", 5, 0, 0), ("192.0.2.7", 5)),
        (("fe80::1", 5, 0, 2), ("fe80::1", 5, 0, 7)),
        ("a:5", "a:5"),
    ],
)
def test_is_translated__not_by_how_a_socket_writes_an_address(known: Address, seen: Address) -> None:
    assert not is_translated(replace(HELLO, source_digest=source_digest(known, context=5)), seen)


def test_is_translated__not_if_the_source_is_unknown() -> None:
    assert not is_translated(HELLO, ("192.0.2.7", 5))


def test_source_digest__names_no_address() -> None:
    """The same address has another digest with each context, so it cannot be followed from one peer to the next."""
    digests = {source_digest(("192.0.2.7", 5), context=context) for context in range(100)}
    assert len(digests) == 100


def test_poll_hello__has_the_digest_of_the_path_that_it_takes() -> None:
    sources = [("192.0.2.7", port) for port in range(3)]
    ours = PeerOpening(1, address="b:0", own_context=5, config=CONFIG, sizes=(600,), sources=sources, now=10.0)
    hellos, _ = sent(ours, hellos=6)
    assert [is_translated(hello, sources[hello.path]) for hello in hellos] == [False] * 6
    assert all(is_translated(hello, sources[(hello.path + 1) % 3]) for hello in hellos)


@pytest.mark.parametrize(("hellos", "size"), [(1, 8972), (4, 8972), (5, 1472), (8, 1472)])
def test_retry__repeats_at_once_at_the_size_and_over_the_path_that_was_answered(hellos: int, size: int) -> None:
    ours = initiator(8972, 1472)
    _, now = sent(ours, hellos=hellos)
    ours.retry(Retry(5, b"cookie", path=1, size_bytes=size), now=now - 0.04)
    hello = poll(ours, now=now - 0.04)
    assert (hello.datagram_bytes, hello.cookie, hello.path) == (size, b"cookie", 1)
    assert ours.poll_hello(now=now - 0.04) is None
    assert poll(ours, now=ours.send_at) == hello, "the cookie is valid for this path only"


@pytest.mark.parametrize(("answered", "size"), [(8972, 8972), (1472, 1472), (1300, 1472), (1200, 1200)])
def test_retry__a_late_one_for_a_larger_size_restores_it(answered: int, size: int) -> None:
    """The network is slow; its MTU suffices. A length that was not proposed is the responder's own limit."""
    ours = initiator(8972, 1472, 1200)
    _, now = sent(ours, hellos=5 if answered != 1200 else 9)
    ours.retry(Retry(5, b"cookie", size_bytes=answered), now=now)
    assert poll(ours, now=now).datagram_bytes == size


def test_retry__a_repeated_cookie_changes_nothing() -> None:
    """Duplicates, and replies over two paths, must not cause a HELLO each."""
    ours = initiator(8972)
    sent(ours, hellos=2)
    ours.retry(Retry(5, b"cookie", path=1), now=10.101)
    assert ours.poll_hello(now=10.101)
    for retry in (Retry(5, b"cookie", path=1), Retry(5, b"another", path=0)):
        ours.retry(retry, now=10.102)
        assert ours.poll_hello(now=10.102) is None


def test_retry__of_an_unknown_path_is_ignored() -> None:
    ours = initiator(8972)
    sent(ours, hellos=1)
    ours.retry(Retry(5, b"cookie", path=3), now=10.01)
    assert ours.poll_hello(now=10.01) is None


def test_round_trip_s__of_the_hello_that_was_answered() -> None:
    ours = initiator(8972)
    assert ours.round_trip_s(now=10.0) is None
    _, now = sent(ours, hellos=2)
    ours.retry(Retry(5, b"cookie", 1, 8972), now=now)
    assert ours.round_trip_s(now=now) is None, "not sent yet"
    assert ours.poll_hello(now=now + 0.001) is not None
    assert ours.round_trip_s(now=now + 0.003) == pytest.approx(0.002)


def test_round_trip_s__is_never_zero() -> None:
    """The pacing rate is computed from it."""
    ours = initiator(8972)
    sent(ours, hellos=1)
    ours.retry(Retry(5, b"cookie", 0, 8972), now=10.0)
    assert ours.poll_hello(now=10.0) is not None
    assert ours.round_trip_s(now=10.0) == MIN_RTT_S > 0


def test_round_trip_s__none_if_repeated() -> None:
    """It is ambiguous which of the two is answered (Karn's algorithm)."""
    ours = initiator(8972)
    sent(ours, hellos=1)
    ours.retry(Retry(5, b"cookie", 0, 8972), now=10.001)
    sent(ours, hellos=2)
    assert ours.round_trip_s(now=ours.send_at) is None


@pytest.mark.parametrize(("retry_at", "accept_at"), [(10.6, 11.4), (10.8, 11.4)])
def test_max_round_trip_s__is_the_time_to_the_answer_that_came_sooner(retry_at: float, accept_at: float) -> None:
    """Both the RETRY and the ACCEPT took one; either may be later because a HELLO was lost."""
    ours = initiator(8972)
    sent(ours, hellos=3)
    ours.retry(Retry(5, b"cookie", 0, 8972), now=retry_at)
    sent(ours, hellos=12)
    assert ours.max_round_trip_s(now=accept_at) == pytest.approx(0.6)
