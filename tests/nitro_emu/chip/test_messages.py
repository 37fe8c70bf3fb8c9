"""nitro_emu.chip.messages: packets, and whatever else comes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nitro_emu.chip.messages import MAX_ID, MAX_REQUEST_BYTES, ChipMessage, decode_untrusted, encode, one_line
from nitro_emu.errors import TrustError
from nitro_emu.trust.cbor import dumps


def decoded(packet: bytes) -> ChipMessage:
    return decode_untrusted(packet, name="the request", max_bytes=MAX_REQUEST_BYTES)


values = st.one_of(st.none(), st.booleans(), st.integers(-(1 << 62), 1 << 62), st.binary(max_size=20))


@given(
    st.integers(0, MAX_ID),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=8), values, max_size=4),
)
def test_messages_survive(number: int, name: str, fields: dict[str, Any]) -> None:
    assert decoded(encode(number, name, fields)) == ChipMessage(number, name, fields)
    assert decoded(encode(number, name)) == ChipMessage(number, name, {})
    assert decoded(encode(number, name, "text")) == ChipMessage(number, name, {}, "text")


@given(st.binary(max_size=200))
def test_whatever_comes_is_one_error_at_most(packet: bytes) -> None:
    try:
        decoded(packet)
    except TrustError as error:
        assert "\n" not in str(error)  # noqa: PT017


@pytest.mark.parametrize(
    "item",
    [
        1,
        [],
        [1],
        [1, "Status", 2],
        ["1", "Status"],
        [True, "Status"],
        [-1, "Status"],
        [MAX_ID + 1, "Status"],
        [1, 2],
        [1, {}],
        [1, {"a": {}, "b": {}}],
        [1, {5: {}}],
        [1, {"a": 5}],
        [1, {"a": None}],
        [1, {"a": {5: 6}}],
    ],
)
def test_other_forms_are_refused(item: object) -> None:
    with pytest.raises(TrustError, match=r"the request (has|is)"):
        decoded(dumps(item))


def test_a_packet_is_bounded() -> None:
    with pytest.raises(TrustError, match="4097 bytes"):
        decoded(bytes(MAX_REQUEST_BYTES + 1))


def test_reasons_are_one_line() -> None:
    assert one_line("a\nb\x1b\udcffé") == "a?b??é"
    assert len(one_line("x" * 5000)) == 1000
