"""Stateless replies to unknown senders."""

from __future__ import annotations

from dataclasses import replace

import pytest

from srd.proto.endpoint import handshake
from srd.proto.endpoint.handshake import CookieJar, source_digest
from srd.proto.endpoint.stateless import MAX_REPLIES, StatelessResponder
from srd.proto.wire.control import Accept, Ack, Close, Closed, Control, Probe, Refuse, Reset, Retry, decode_untrusted
from srd.proto.wire.status import Status
from tests.srd.proto.byhand import hello


def responder(*, accepting: bool = True) -> StatelessResponder:
    return StatelessResponder(secret=b"s" * 16, accepting=accepting, paths=4, datagram_bytes=8972, security=None)


def replies_of(to: StatelessResponder) -> list[Control]:
    return [decode_untrusted(reply.data) for reply in to.replies]


@pytest.mark.parametrize(
    ("packet", "answer"),
    [
        (Close(5, 6), [Closed(6, 5)]),
        (Probe(5, 6, 1, 2, 3), [Reset(6, 5)]),
        (Accept(5, 6, 7, 8, 9, 64, 1472), [Close(6, 5)]),
        (Ack(5, 0, 0, 0, 0, ()), []),
        (Closed(5, 6), []),
        (Reset(5, 6), []),
    ],
)
def test_handle_stray(packet: Control, answer: list[Control]) -> None:
    ours = responder()
    ours.on_unknown_context(packet, "x:1")
    assert replies_of(ours) == answer
    assert all(reply.address == "x:1" for reply in ours.replies)


def test_answers__strangers_get_none() -> None:
    ours = StatelessResponder(
        secret=b"s" * 16,
        accepting=True,
        paths=4,
        datagram_bytes=8972,
        security=None,
        answers=lambda address: address == "known:1",
    )
    for address in ("x:1", "known:1"):
        assert not ours.validate_address(hello(), address, now=100.0, has_room=True)
        ours.on_unknown_context(Close(5, 6), address)
    assert [reply.address for reply in ours.replies] == ["known:1", "known:1"]


def test_validate_address__only_with_the_cookie() -> None:
    ours = responder()
    assert not ours.validate_address(hello(), "x:1", now=100.0, has_room=True)
    (retry,) = replies_of(ours)
    assert isinstance(retry, Retry)
    assert ours.validate_address(hello(cookie=retry.cookie), "x:1", now=100.0, has_room=True)
    assert not ours.validate_address(hello(cookie=retry.cookie), "y:1", now=100.0, has_room=True)
    assert len(ours.replies) == 2


@pytest.mark.parametrize(("known", "path"), [("x:1", 3), ("x:2", 0)])
def test_validate_address__answers_from_the_port_that_was_contacted_behind_a_nat(known: str, path: int) -> None:
    """Else from the port of the HELLO's number: path 0 may be dead."""
    ours = responder()
    packet = replace(hello(path=3), source_digest=source_digest(known, context=77))
    assert not ours.validate_address(packet, "x:1", now=100.0, has_room=True)
    ours.refuse(packet, "x:1", status=Status.REMOTE_ERROR_RNR)
    assert [reply.path for reply in ours.replies] == [path, path]


def test_validate_address__a_cookie_once() -> None:
    ours = responder()
    ours.validate_address(hello(), "x:1", now=100.0, has_room=True)
    (retry,) = replies_of(ours)
    assert isinstance(retry, Retry)
    ours.replies.clear()
    second = hello(cookie=retry.cookie)
    for now, is_first in ((100.0, True), (101.0, False), (119.9, False)):
        assert ours.validate_address(second, "x:1", now=now, has_room=True)
        assert ours.spend_cookie(second, "x:1", now=now) is is_first
    assert replies_of(ours) == [Refuse(77, Status.REMOTE_ERROR_ABORT)] * 2


@pytest.mark.sources  # replaces a constant
def test_validate_address__while_no_more_spent_cookies_can_be_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = responder()
    monkeypatch.setattr(handshake, "MAX_USED_COOKIES", 3)
    for context in range(3):
        assert hello_with_cookie(ours, context=context, now=100.0) == []
    assert hello_with_cookie(ours, context=9, now=119.0) == [Refuse(9, Status.REMOTE_ERROR_RNR)]
    assert hello_with_cookie(ours, context=9, now=120.0) == [], "expired cookies are dropped"


def hello_with_cookie(ours: StatelessResponder, *, context: int, now: float) -> list[Control]:
    """Send a HELLO with a valid cookie; return the replies, if it is not accepted."""
    cookie = CookieJar(secret=b"s" * 16).make(address="x:1", context=context, now=now)
    second = hello(context=context, cookie=cookie)
    welcome = ours.validate_address(second, "x:1", now=now, has_room=True) and ours.spend_cookie(second, "x:1", now=now)
    out = replies_of(ours)
    ours.replies.clear()
    assert welcome is (not out)
    return out


@pytest.mark.parametrize(
    ("data", "answered"),
    [
        (b"\x09" + hello().encode()[1:], True),
        (hello().encode(), False),  # of this version, so it is malformed otherwise
        (b"\x09" + hello().encode()[1:575], False),  # too short for a HELLO: the reply would be longer
        (b"\x09\x04" + hello().encode()[2:], False),
        (b"", False),
    ],
)
def test_on_malformed__a_hello_of_another_version(data: bytes, *, answered: bool) -> None:
    ours = responder()
    ours.on_malformed(data, "x:1")
    assert replies_of(ours) == [Refuse(77, 18)] * answered


@pytest.mark.parametrize("size", [576, 1472, 8972, 65_507])
def test_validate_address__the_reply_is_as_long_as_the_hello_or_as_the_largest_datagram(size: int) -> None:
    ours = responder()
    ours.validate_address(hello(size=size), "x:1", now=100.0, has_room=True)
    assert [len(reply.data) for reply in ours.replies] == [min(size, 8972)]


def test_validate_address__replies_take_the_path_that_the_hello_names() -> None:
    ours = responder()
    for path in (0, 3, 4, 255):
        ours.validate_address(hello(path=path), "x:1", now=100.0, has_room=True)
    assert [reply.path for reply in ours.replies] == [0, 3, 0, 3]
    assert [retry.path for retry in replies_of(ours) if isinstance(retry, Retry)] == [0, 3, 4, 255]


def test_reply__pending_replies_are_bounded() -> None:
    ours = responder()
    for context in range(10 * MAX_REPLIES):
        ours.on_unknown_context(Close(context, 6), "x:1")
    assert replies_of(ours) == [Closed(6, context) for context in range(MAX_REPLIES)]
