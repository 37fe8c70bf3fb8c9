"""Answers to those that have no peer here."""

from __future__ import annotations

import pytest

from srd.proto.control import Ack, Close, Closed, Control, Probe, Refuse, Reset, Retry, decode_untrusted
from srd.proto.strangers import MAX_REPLIES, Strangers
from tests.srd.proto.byhand import hello


def strangers(*, accepting: bool = True) -> Strangers:
    return Strangers(secret=b"s" * 16, accepting=accepting, paths=4, datagram_bytes=8972)


def said(to: Strangers) -> list[Control]:
    return [decode_untrusted(reply.data) for reply in to.replies]


@pytest.mark.parametrize(
    ("packet", "answer"),
    [(Close(5), [Closed(5)]), (Probe(5, 1, 2, 3), [Reset(5)]), (Ack(5, 0, 0, 0, 0, ()), []), (Reset(5), [])],
)
def test_handle_stray(packet: Control, answer: list[Control]) -> None:
    ours = strangers()
    ours.handle_stray(packet, "x:1")
    assert said(ours) == answer
    assert all(reply.address == "x:1" for reply in ours.replies)


def test_welcomes__only_with_the_cookie() -> None:
    ours = strangers()
    assert not ours.welcomes(hello(), "x:1", now=100.0)
    (retry,) = said(ours)
    assert isinstance(retry, Retry)
    assert ours.welcomes(hello(cookie=retry.cookie), "x:1", now=100.0)
    assert not ours.welcomes(hello(cookie=retry.cookie), "y:1", now=100.0)
    assert len(ours.replies) == 2


@pytest.mark.parametrize(
    ("data", "answered"),
    [
        (b"\x02" + hello().encode()[1:], True),
        (hello().encode(), False),  # of our version, so it is malformed otherwise
        (b"\x02" + hello().encode()[1:575], False),  # too short for a HELLO: we would send more than we got
        (b"\x02\x04" + hello().encode()[2:], False),
        (b"", False),
    ],
)
def test_handle_malformed__a_hello_of_another_version(data: bytes, *, answered: bool) -> None:
    ours = strangers()
    ours.handle_malformed(data, "x:1")
    assert said(ours) == [Refuse(77, 18)] * answered


def test_welcomes__nobody() -> None:
    ours = strangers(accepting=False)
    assert not ours.welcomes(hello(), "x:1", now=100.0)
    assert said(ours) == [Refuse(77, 9)]


@pytest.mark.parametrize("size", [576, 1472, 8972, 65_507])
def test_welcomes__the_answer_is_as_long_as_the_hello_or_as_what_we_take(size: int) -> None:
    ours = strangers()
    ours.welcomes(hello(size=size), "x:1", now=100.0)
    assert [len(reply.data) for reply in ours.replies] == [min(size, 8972)]


def test_welcomes__answers_leave_by_the_path_that_the_hello_names() -> None:
    ours = strangers()
    for path in (0, 3, 4, 255):
        ours.welcomes(hello(path=path), "x:1", now=100.0)
    assert [reply.path for reply in ours.replies] == [0, 3, 0, 3]
    assert [retry.path for retry in said(ours) if isinstance(retry, Retry)] == [0, 3, 4, 255]


def test_reply__only_so_many_wait() -> None:
    ours = strangers()
    for context in range(10 * MAX_REPLIES):
        ours.handle_stray(Close(context), "x:1")
    assert said(ours) == [Closed(context) for context in range(MAX_REPLIES)]
