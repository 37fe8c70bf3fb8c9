"""Strict CBOR: what is refused, and that refusing it costs little."""

from __future__ import annotations

import tracemalloc

import cbor2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nitro_emu.errors import TrustError
from nitro_emu.trust.cbor import MAX_BYTES, MAX_DEPTH, dumps, loads_untrusted

SCALARS = (
    st.integers(-(1 << 64), (1 << 64) - 1)
    | st.binary(max_size=300)
    | st.text(max_size=300)
    | st.booleans()
    | st.none()
    | st.floats(allow_nan=False)
)
KEYS = st.integers(-(1 << 64), (1 << 64) - 1) | st.binary(max_size=8) | st.text(max_size=8)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=6) | st.dictionaries(KEYS, inner, max_size=6), max_leaves=30
)

REFUSED = {
    "": "it ends 1 bytes too early",
    "0000": "1 bytes follow its end",
    "ff": "a break is out of place",
    "81ff": "a break is out of place",
    "bf00ff": "a map ends after a key",
    "1c": "the length code 28 is reserved",
    "1f": "the length code 31 is reserved",
    "df": "it has a tag",
    "c000": "it has a tag",
    "c249010000000000000000": "it has a tag",  # a bignum
    "d81c80": "it has a tag",  # a shared value
    "f7": "the simple value 23 has no meaning here",  # undefined
    "e0": "the simple value 0 has no meaning here",
    "f820": "the simple value 24 has no meaning here",
    "5f4100ff": "a string comes in chunks",
    "7f6100ff": "a string comes in chunks",
    "4201": "it ends 1 bytes too early",
    "19ff": "it ends 1 bytes too early",
    "5b7fffffffffffffff": "it ends 9223372036854775807 bytes too early",
    "9b7fffffffffffffff": "9223372036854775807 items are announced",
    "bbffffffffffffffff": "36893488147419103230 items are announced",
    "a1f600": "a map's key is neither an integer nor a string",
    "a1f500": "a map's key is neither an integer nor a string",
    "a18000": "a map's key is neither an integer nor a string",
    "a201000100": "a map has the same key twice (at byte 3)",
    "a20100180100": "a map has the same key twice (at byte 3)",  # 1 in two encodings
    "bf01000100ff": "a map has the same key twice (at byte 3)",
    "a2416100416100": "a map has the same key twice (at byte 4)",
    "a2616100616100": "a map has the same key twice (at byte 4)",
    "61ff": "error decoding unicode string",
    "8080": "1 bytes follow its end",
}


@pytest.mark.parametrize("encoded", REFUSED, ids=[name or "empty" for name in REFUSED])
def test_refusals(encoded: str) -> None:
    with pytest.raises(TrustError, match=r"^the thing is no ") as caught:
        loads_untrusted(bytes.fromhex(encoded), name="the thing")
    assert REFUSED[encoded] in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("encoded", "value"),
    [
        ("9f0102ff", [1, 2]),
        ("bf6161016162820203ff", {"a": 1, "b": [2, 3]}),
        ("1801", 1),
        ("f93c00", 1.0),
        ("a24161006161f5", {b"a": 0, "a": True}),
        ("3bffffffffffffffff", -(1 << 64)),
    ],
)
def test_what_is_accepted(encoded: str, value: object) -> None:
    assert loads_untrusted(bytes.fromhex(encoded), name="it") == value


@given(VALUES)
def test_round_trip(value: object) -> None:
    assert loads_untrusted(dumps(value), name="it") == value


@given(
    st.binary(max_size=64)
    | st.lists(st.sampled_from(b"\x00\x18\x41\x61\x81\xa1\x9f\xbf\xff\xf6"), max_size=64).map(bytes)
)
def test_any_bytes_are_refused_or_decode_as_cbor2_does(data: bytes) -> None:
    try:
        value = loads_untrusted(data, name="it")
    except TrustError:
        return
    assert repr(value) == repr(cbor2.loads(data))


def test_depth_is_bounded() -> None:
    assert loads_untrusted(b"\x81" * MAX_DEPTH + b"\x00", name="it")
    for opening in (b"\x81", b"\x9f", b"\xa1\x00", b"\xbf\x00"):
        with pytest.raises(TrustError, match=f"it is nested deeper than {MAX_DEPTH}"):
            loads_untrusted(opening * (MAX_BYTES // len(opening)), name="it")


def test_size_is_bounded() -> None:
    with pytest.raises(TrustError, match="it has 1048577 bytes; at most 1048576 are accepted"):
        loads_untrusted(bytes(MAX_BYTES + 1), name="it")
    with pytest.raises(TrustError, match="it has 5 bytes; at most 4 are accepted"):
        loads_untrusted(bytes(5), name="it", max_bytes=4)


def test_number_of_items_is_bounded() -> None:
    assert loads_untrusted(b"\x83\x01\x02\x03", name="it", max_items=4) == [1, 2, 3]
    with pytest.raises(TrustError, match="it has too many items"):
        loads_untrusted(b"\x83\x01\x02\x03", name="it", max_items=3)
    hostile = b"\x9a" + (MAX_BYTES - 5).to_bytes(4) + bytes(MAX_BYTES - 5)
    with pytest.raises(TrustError, match=r"it has too many items \(at byte 20\)"):  # the rest is not looked at
        loads_untrusted(hostile, name="it", max_items=16)


@pytest.mark.parametrize("start", ["9b0000000000fffff0", "bb000000000007fff0", "5a7fffffff", "9a7fffffff", "9f", "bf"])
def test_memory_is_bounded_before_anything_is_believed(start: str) -> None:
    hostile = (bytes.fromhex(start) + b"\x5a\x7f\xff\xff\xff").ljust(MAX_BYTES, b"\x00")
    tracemalloc.start()
    try:
        with pytest.raises(TrustError):
            loads_untrusted(hostile, name="it")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4 * MAX_BYTES
