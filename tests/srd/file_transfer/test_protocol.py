"""srd.file_transfer.protocol: valid messages, and that all others are rejected."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from srd.file_transfer.protocol import (
    CHUNK_BYTES,
    CONTROL_MESSAGE,
    MAX_CONTROL_BYTES,
    MAX_RETRY_S,
    MAX_TEXT,
    Offer,
    TransferError,
    decode_untrusted,
    encode,
    offer_untrusted,
    reason_of,
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
OFFERS: dict[str, Any] = {"kind": "offer", "name": "a.bin", "size": 10, "chunk_bytes": CHUNK_BYTES}
OFFERS |= {"transfer": "0123456789abcdef" * 2, "retry_for_s": 60, "files_left": 2}
FIELDS = ("name", "size", "chunk_bytes", "transfer", "retry_for_s")


# -- messages -------------------------------------------------------------------------------------------------------


@given(kind=st.text(), fields=st.dictionaries(st.text().filter(lambda key: key != "kind"), JSON, max_size=4))
def test_encode__decodes_to_the_same(kind: str, fields: dict[str, Any]) -> None:
    body = encode(kind, **fields)
    assert json.dumps(decode_untrusted(body)) == json.dumps({"kind": kind, **fields})  # NaN is not equal to itself


@given(body=st.binary(max_size=300) | st.text().map(str.encode) | JSON.map(lambda value: json.dumps(value).encode()))
@example(body=b"")
@example(body=b"[" * 5000)
@example(body=b"1" * 5000)
@example(body=b"\xff\xfe{")
@example(body=b'{"kind": 1}')
@example(body=b'{"kind": "offer", "kind": 2}')
@example(body=b"{" + b" " * MAX_CONTROL_BYTES)
def test_decode_untrusted__raises_transfer_error_or_returns_a_message(body: bytes) -> None:
    try:
        message = decode_untrusted(body)
    except TransferError:
        return
    assert isinstance(message["kind"], str)


def test_decode_untrusted__the_longest_message() -> None:
    body = b'{"kind": "x"}'.ljust(MAX_CONTROL_BYTES)
    assert decode_untrusted(body) == {"kind": "x"}
    with pytest.raises(TransferError, match=f"{MAX_CONTROL_BYTES + 1} bytes"):
        decode_untrusted(body + b" ")


@given(text=st.text(alphabet="\U0001f389\n\x1b", min_size=1).map(lambda text: text * 9000))
def test_encode__truncates_any_text_to_a_message(text: str) -> None:
    """A reason may quote the other end, and JSON makes twelve bytes of some characters."""
    assert text.startswith(decode_untrusted(encode("refuse", reason=text))["reason"])


def test_reason_of__is_one_line() -> None:
    assert reason_of({"reason": "a\x1b[2J\n"}, default="b") == r"a\x1b[2J\n"
    assert reason_of({"reason": ["\n"]}, default="b") == r"['\n']"
    assert reason_of({}, default="b") == "b"
    assert len(reason_of({"reason": "x" * 9000}, default="b")) == MAX_TEXT


# -- offers ---------------------------------------------------------------------------------------------------------


@given(message=st.fixed_dictionaries({"kind": st.just("offer") | st.text()}, optional=dict.fromkeys(FIELDS, JSON)))
@example(message={**OFFERS, "name": "\ud800"})
@example(message={**OFFERS, "size": -1})
@example(message={**OFFERS, "chunk_bytes": 0})
@example(message={**OFFERS, "size": float("nan")})
def test_offer_untrusted__raises_transfer_error_or_returns_an_offer(message: dict[str, Any]) -> None:
    try:
        offer = offer_untrusted(message)
    except TransferError:
        return
    assert "/" not in offer.name
    assert 0 <= offer.chunks < CONTROL_MESSAGE


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "/", "a/b", "../a", "/etc/passwd", "a\0b", "\ud800", "x" * 256, "é" * 128, "🎉" * 64],
)
def test_offer_untrusted__names_of_other_directories_bad_flow(name: str) -> None:
    with pytest.raises(TransferError, match="name") as caught:
        offer_untrusted({**OFFERS, "name": name})
    str(caught.value).encode()


@pytest.mark.parametrize("name", ["a", "...", "..a", "-rf", " ", "a b", "~", "x" * 255, "é" * 127, "🎉" * 63])
def test_offer_untrusted__unusual_valid_names(name: str) -> None:
    assert offer_untrusted({**OFFERS, "name": name}).name == name


@pytest.mark.parametrize(
    "changed",
    [
        {"kind": "accept"},
        {"name": None},
        {"name": 7},
        {"size": "10"},
        {"size": 1.5},
        {"size": -1},
        {"size": 1 << 62},
        {"chunk_bytes": None},
        {"chunk_bytes": 1023},
        {"chunk_bytes": (1 << 24) + 1},
        {"size": CONTROL_MESSAGE << 10, "chunk_bytes": 1 << 10},
        {"size": True},
        {"transfer": None},
        {"transfer": "../../../../../../../etc/passwd/"},
        {"transfer": "0" * 31},
        {"transfer": "0" * 32 + "\n"},
        {"retry_for_s": None},
        {"files_left": None},
        {"files_left": -1},
        {"files_left": True},
        {"retry_for_s": 1.5},
    ],
    ids=str,
)
def test_offer_untrusted__bad_flow(changed: dict[str, Any]) -> None:
    with pytest.raises(TransferError):
        offer_untrusted({**OFFERS, **changed})


@pytest.mark.parametrize(("offered_s", "kept_s"), [(-5, 0), (0, 0), (60, 60), (1 << 70, MAX_RETRY_S)])
def test_offer_untrusted__the_time_for_leftovers_is_limited(offered_s: int, kept_s: int) -> None:
    assert offer_untrusted({**OFFERS, "retry_for_s": offered_s}).retry_for_s == kept_s


@pytest.mark.parametrize(
    ("size", "chunks"),
    [(0, 0), (1, 1), (CHUNK_BYTES - 1, 1), (CHUNK_BYTES, 1), (CHUNK_BYTES + 1, 2), (10 * CHUNK_BYTES, 10)],
)
def test_offer__chunks(size: int, chunks: int) -> None:
    assert Offer("a", size, CHUNK_BYTES, "").chunks == chunks
