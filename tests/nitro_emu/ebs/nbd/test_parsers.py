"""What strangers send, without sockets: any bytes are an answer or one exception."""

from __future__ import annotations

import struct
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nitro_emu.ebs.nbd import wire
from nitro_emu.ebs.nbd.negotiation import AfterOption, Negotiation
from nitro_emu.ebs.nbd.wire import NbdError
from tests.nitro_emu.ebs.nbd.client import text

SIZE = 1 << 20


def negotiation() -> Negotiation:
    return Negotiation(name="vol-1", size_bytes=SIZE)


names = st.one_of(st.just(b"vol-1"), st.just(b""), st.binary(max_size=20))
queries = st.lists(st.one_of(st.sampled_from([b"base:allocation", b"base:"]), st.binary(max_size=20)), max_size=70)
options = st.one_of(
    st.tuples(st.integers(0, 12), st.binary(max_size=64)),
    st.tuples(
        st.sampled_from([6, 7]),
        st.builds(
            lambda name, wanted, rest: text(name) + struct.pack(f">H{len(wanted)}H", len(wanted), *wanted) + rest,
            names,
            st.lists(st.integers(0, 5), max_size=5),
            st.sampled_from([b"", b"x"]),
        ),
    ),
    st.tuples(
        st.sampled_from([9, 10]),
        st.builds(
            lambda name, asked: text(name) + struct.pack(">I", len(asked)) + b"".join(map(text, asked)), names, queries
        ),
    ),
)


@given(st.lists(options, max_size=10))
def test_every_option_gets_whole_answers_and_the_last_one_ends_them(sent: list[tuple[int, bytes]]) -> None:
    agreed = negotiation()
    for option, data in sent:
        try:
            answer, outcome = agreed.answer_untrusted(option, data)
        except NbdError:
            assert option == 1  # has no answer that says no
            return
        if option == 1:
            assert (len(answer), outcome) == (134, AfterOption.TRANSMISSION)
            return
        kinds = []
        while answer:
            magic, about, kind, length = struct.unpack(">QIII", answer[:20])
            assert (magic, about) == (0x3E889045565A9, option)
            assert len(answer) >= 20 + length
            kinds.append(kind)
            answer = answer[20 + length :]
        assert [kind == 1 or kind >> 31 == 1 for kind in kinds] == [False] * (len(kinds) - 1) + [True]
        if outcome is not AfterOption.MORE:
            assert kinds[-1] == 1
            return


@given(st.binary(min_size=28, max_size=28))
def test_any_header_is_a_request_or_one_exception(header: bytes) -> None:
    with suppress(NbdError):
        wire.request_untrusted(header)
    with suppress(NbdError):
        asked = wire.request_untrusted(struct.pack(">I", 0x25609513) + header[4:])
        assert asked.length_bytes <= wire.MAX_PAYLOAD_BYTES or not asked.has_payload


@given(st.binary(max_size=200))
def test_any_data_of_options_is_parsed_or_one_exception(data: bytes) -> None:
    for parse in (wire.info_untrusted, wire.contexts_untrusted):
        with suppress(NbdError):
            parse(data)


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        (b"IHAVEOPX" + struct.pack(">II", 3, 0), "without its magic"),
        (b"IHAVEOPT" + struct.pack(">II", 3, 1 << 30), "at most 16384"),
    ],
)
def test_a_wrong_option_says_what(header: bytes, reason: str) -> None:
    with pytest.raises(NbdError, match=reason):
        wire.option_untrusted(header)


def test_contexts_are_listed_by_prefix_and_selected_by_name() -> None:
    agreed = negotiation()
    agreed.answer_untrusted(8, b"")
    listed, none = text(b"vol-1") + b"\0\0\0\1" + text(b"base:"), text(b"vol-1") + b"\0\0\0\1" + text(b"qemu:x")
    assert b"base:allocation" in agreed.answer_untrusted(9, listed)[0]
    assert b"base:allocation" in agreed.answer_untrusted(9, text(b"") + bytes(4))[0]
    chosen, whole = [], text(b"vol-1") + b"\0\0\0\1" + text(b"base:allocation")
    for data in (listed, whole, none, whole, text(b"other") + whole[9:], whole, b"cut"):
        agreed.answer_untrusted(10, data)
        chosen.append(agreed.has_context)
    assert chosen == [False, True, False, True, False, True, False]
