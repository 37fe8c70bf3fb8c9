"""Control packets: encoded and decoded, and arbitrary bytes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from srd.proto.base.errors import PacketError
from srd.proto.base.security import MAX_CREDENTIAL_BYTES
from srd.proto.wire.control import (
    MAX_COOKIE_BYTES,
    MIN_PEER_WINDOW_PACKETS,
    Accept,
    Ack,
    Close,
    Closed,
    Control,
    Hello,
    Nack,
    PathChallenge,
    PathReport,
    PathResponse,
    Probe,
    Pull,
    PullRequest,
    Refuse,
    Reset,
    Retry,
    SecureAccept,
    bitmap_room_bytes,
    decode_untrusted,
    max_reports,
)
from srd.proto.wire.data import MAX_DATAGRAM_BYTES, MIN_DATAGRAM_BYTES, PREFIX_BYTES, VERSION, PacketType

U8, U16, U32, U64 = (st.integers(0, 2**bits - 1) for bits in (8, 16, 32, 64))
REPORTS = st.builds(PathReport, U8, U32, U32, U32, U32, U16, U16, U32)
BITMAPS = st.integers(0, 2**4096 - 1).map(lambda bits: bits << 1)
ACKS = st.builds(Ack, U64, U64, BITMAPS, U64, U64, st.lists(REPORTS, max_size=64).map(tuple), U8, U8, U8)
WINDOWS = st.integers(MIN_PEER_WINDOW_PACKETS, 2**32 - 1)
HELLOS = st.builds(
    Hello,
    own_context=U64,
    credit_bytes=U64,
    credit_messages=U32,
    max_message_bytes=U32,
    window_packets=WINDOWS,
    datagram_bytes=st.integers(MIN_DATAGRAM_BYTES, 9000),
    cookie=st.binary(max_size=MAX_COOKIE_BYTES),
    path=U8,
)
SECURE_HELLOS = st.builds(replace, HELLOS, security=st.integers(1, 255), message=st.binary(max_size=400))
SIZES = st.integers(MIN_DATAGRAM_BYTES, MAX_DATAGRAM_BYTES)
PACKETS: st.SearchStrategy[Control] = st.one_of(
    ACKS,
    HELLOS,
    SECURE_HELLOS,
    st.builds(Retry, U64, st.binary(max_size=64), U8, SIZES, st.binary(max_size=MAX_CREDENTIAL_BYTES)),
    st.builds(Accept, U64, U64, U64, U32, U32, WINDOWS, SIZES),
    st.builds(Probe, U64, U64, U8, U32, U32, U8, U8),
    st.builds(Refuse, U64, U8, U8),
    st.builds(SecureAccept, U64, st.binary(max_size=400)),
    st.builds(Close, U64, U64),
    st.builds(Closed, U64, U64),
    st.builds(Reset, U64, U64, st.binary(max_size=16)),
    st.builds(Nack, U64, U32, U8),
    st.builds(PathChallenge, U64, U64, U8),
    st.builds(PathResponse, U64, U64, U8),
    st.builds(PullRequest, U64, U64, U64, U64, U8),
    st.builds(Pull, U64, U64, U64, U32, U8),
)


@given(PACKETS)
def test_decode_untrusted__inverts_encode(packet: Control) -> None:
    assert decode_untrusted(packet.encode()) == packet


def decoded(data: bytes) -> Control | None:
    """Decode; None if that raises PacketError, the only allowed error."""
    try:
        return decode_untrusted(data)
    except PacketError:
        return None


@given(st.binary(max_size=400))
@example(b"")
@example(bytes(PREFIX_BYTES))
def test_decode_untrusted__arbitrary_bytes(data: bytes) -> None:
    decoded(data)


@given(kind=st.sampled_from(PacketType), rest=st.binary(min_size=14, max_size=400))
def test_decode_untrusted__arbitrary_body(kind: PacketType, rest: bytes) -> None:
    packet = decoded(bytes([VERSION, kind]) + rest)
    assert packet is None or type(packet).__name__.upper() == kind.name.replace("_", "")


@given(packet=PACKETS, data=st.data())
def test_decode_untrusted__truncated_anywhere(packet: Control, data: st.DataObject) -> None:
    whole = packet.encode()
    cut = decoded(whole[: data.draw(st.integers(0, len(whole) - 1))])
    if not isinstance(packet, Retry | Refuse | Reset | SecureAccept):  # the length of the others is known
        assert cut is None


def test_decode_untrusted__errors() -> None:
    close = Close(1, 2).encode()
    with pytest.raises(PacketError, match="15 bytes are no packet"):
        decode_untrusted(close[:15])
    with pytest.raises(PacketError, match=f"version 9 is not {VERSION}"):
        decode_untrusted(b"\x09" + close[1:])
    with pytest.raises(PacketError, match="type 200"):
        decode_untrusted(bytes([VERSION, 200]) + close[2:])
    with pytest.raises(PacketError, match="type 1 is no control packet"):
        decode_untrusted(bytes([VERSION, 1]) + close[2:])
    with pytest.raises(PacketError, match="cut short"):
        decode_untrusted(Probe(1, 6, 2, 3, 4).encode()[:-1])


ACK = Ack(context=1, cumulative=10, bitmap=0b1010, credit_bytes=5, credit_messages=6, reports=())
HELLO = Hello(1, 2, 3, max_message_bytes=9, window_packets=64, datagram_bytes=MIN_DATAGRAM_BYTES)
ACCEPT = Accept(1, 2, 3, 4, max_message_bytes=9, window_packets=64, datagram_bytes=1472)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (replace(ACK, bitmap=0b11).encode(), "cumulative point"),
        (ACK.encode() + b"\0", "1 bytes of bitmap has 2"),
        (ACK.encode()[:-1], "1 bytes of bitmap has 0"),
        (HELLO.encode() + b"\0", "a hello for 576 bytes has 577"),
        (HELLO.encode()[:-1], "a hello for 576 bytes has 575"),
        (replace(HELLO, datagram_bytes=MIN_DATAGRAM_BYTES - 1).encode(), "575 bytes are out of range"),
        (replace(HELLO, datagram_bytes=57, cookie=bytes(24)).encode()[:57], "a cookie of 24 bytes has 0"),
        (replace(HELLO, window_packets=63).encode(), "a window of 63 packets is less than 64"),
        (replace(HELLO, paths=0).encode(), "an end without paths"),
        (replace(ACCEPT, window_packets=63).encode(), "a window of 63 packets is less than 64"),
        (Retry(1, bytes(MAX_COOKIE_BYTES + 1)).encode(), "a cookie of 65 bytes is longer than 64"),
        (Retry(1, bytes(24)).encode()[:-3], "a cookie of 24 bytes has 23"),
        (Retry(1, bytes(24), credential=bytes(32)).encode()[:-1], "a credential of 32 bytes has 31"),
        (
            Retry(1, b"", credential=bytes(MAX_CREDENTIAL_BYTES + 1)).encode(),
            "a credential of 961 bytes is longer than 960",
        ),
        (replace(HELLO, security=2, message=bytes(600)).encode()[:576], "a message of 600 bytes has"),
        (Retry(1, b"").encode()[:-1], "is cut short"),
        (replace(ACCEPT, datagram_bytes=MIN_DATAGRAM_BYTES - 1).encode(), "out of range"),
        (replace(ACCEPT, datagram_bytes=MAX_DATAGRAM_BYTES + 1).encode(), "out of range"),
    ],
)
def test_decode_untrusted__inconsistent_lengths(data: bytes, message: str) -> None:
    with pytest.raises(PacketError, match=message):
        decode_untrusted(data)


@given(SIZES)
def test_hello__is_padded_to_the_size_it_proposes(size: int) -> None:
    assert len(replace(HELLO, datagram_bytes=size, cookie=bytes(24)).encode()) == size


@given(HELLOS | SECURE_HELLOS)
def test_hello__transcript_is_all_up_to_the_cookie(hello: Hello) -> None:
    """So a handshake's message is bound to each field, and may be made before it is in the packet."""
    assert hello.transcript == replace(hello, message=b"").transcript
    assert hello.transcript.endswith(hello.cookie)
    assert len(hello.transcript) == len(replace(hello, cookie=b"").transcript) + len(hello.cookie)
    assert hello.encode().startswith(hello.transcript)


def test_ack__of_nothing_has_no_bitmap() -> None:
    """PSN 10 + i is bit i, counted from the lowest of the first byte."""
    empty = len(replace(ACK, bitmap=0).encode())
    assert len(ACK.encode()) == empty + 1
    assert replace(ACK, bitmap=1 << 8).encode()[empty:] == b"\0\x01"


def test_probe__path_sequence_is_truncated() -> None:
    probe = decode_untrusted(Probe(1, 6, 2, (3 << 32) + 4, 5).encode())
    assert probe == Probe(1, 6, 2, 4, 5)


@given(room=st.integers(MIN_DATAGRAM_BYTES, MAX_DATAGRAM_BYTES), wanted=st.integers(0, 64))
def test_bitmap_room_bytes__fills_an_ack_to_the_last_byte(room: int, wanted: int) -> None:
    count = min(wanted, max_reports(room))
    bits = 8 * bitmap_room_bytes(room, reports=count)
    ack = Ack(1, 0, 1 << bits - 1, 0, 0, (PathReport(1, 2, 3, 4, 5, 6),) * count)
    assert len(ack.encode()) == room


def test_max_reports__always_one_and_never_more_than_half() -> None:
    assert max_reports(MIN_DATAGRAM_BYTES) * 24 <= MIN_DATAGRAM_BYTES / 2
    assert max_reports(0) == 1
