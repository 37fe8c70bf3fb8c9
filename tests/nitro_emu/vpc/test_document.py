"""nitro_emu.vpc.document: a map is believed if it was signed, is not expired, and not of the future."""

from __future__ import annotations

import json
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP384R1, generate_private_key
from hypothesis import given
from hypothesis import strategies as st

from nitro_emu.errors import VpcError
from nitro_emu.trust.cose import sign1
from nitro_emu.vpc.document import (
    MAX_DOCUMENT_BYTES,
    MAX_HEADER_BYTES,
    StaleMapError,
    open_map_untrusted,
    sign_map,
)
from tests.nitro_emu.vpc.maps import EVERY_KEY, interface, map_of, peered_vpcs, two_vpcs

KEY = generate_private_key(SECP384R1())
NOW_S = 1_795_568_461.25


HEADER = {"kind": "nitro-vpc-map", "version": 7, "issued_at_s": NOW_S, "lifetime_s": 60}


def payload(found: object = None, **changes: object) -> bytes:
    """Return what is signed: a header with changes (None: without the key), and a map, as it is if it is bytes."""
    header = {key: value for key, value in {**HEADER, **changes}.items() if value is not None}
    second = found if isinstance(found, bytes) else json.dumps(two_vpcs() if found is None else found).encode()
    return json.dumps(header).encode() + b"\n" + second


def error_of(document: bytes, *, now_s: float = NOW_S, newer_than: int | None = None) -> str:
    with pytest.raises(VpcError) as caught:
        open_map_untrusted(document, key=KEY.public_key(), now_s=now_s, newer_than=newer_than)
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith("map: ")
    return message


@pytest.mark.parametrize("content", [two_vpcs(), peered_vpcs(), {}, EVERY_KEY])
def test_document_says_what_was_signed(content: dict[str, Any]) -> None:
    vpc_map = map_of(content)
    opened = open_map_untrusted(
        sign_map(vpc_map, version=7, issued_at_s=NOW_S, key=KEY), key=KEY.public_key(), now_s=NOW_S
    )
    assert opened.map == vpc_map
    assert (opened.version, opened.issued_at_s, opened.lifetime_s) == (7, NOW_S, vpc_map.lifetime_s)
    assert opened.expires_at_s == NOW_S + vpc_map.lifetime_s


@pytest.mark.parametrize("late_s", [0, 59.9, 60, 60.1, 86400])
def test_document_expires(late_s: float) -> None:
    document = sign_map(map_of(two_vpcs()), version=7, issued_at_s=NOW_S, key=KEY)
    if late_s <= 60:
        open_map_untrusted(document, key=KEY.public_key(), now_s=NOW_S + late_s)
    else:
        wanted = (
            f"map: version 7 expired {late_s - 60:.0f} s ago (lifetime 60 s); it is an old one, or a clock is wrong"
        )
        assert error_of(document, now_s=NOW_S + late_s) == wanted


@pytest.mark.parametrize("early_s", [0, 5, 5.1, 86400])
def test_document_of_the_future_is_refused(early_s: float) -> None:
    document = sign_map(map_of(two_vpcs()), version=7, issued_at_s=NOW_S, key=KEY)
    if early_s <= 5:
        open_map_untrusted(document, key=KEY.public_key(), now_s=NOW_S - early_s)
    else:
        wanted = f"map: version 7 was issued {early_s:.0f} s in the future; a clock is wrong"
        assert error_of(document, now_s=NOW_S - early_s).startswith(wanted)


def test_version_that_is_not_newer_is_refused() -> None:
    document = sign_map(map_of(two_vpcs()), version=7, issued_at_s=NOW_S, key=KEY)
    for newer_than in (None, 0, 6):
        assert open_map_untrusted(document, key=KEY.public_key(), now_s=NOW_S, newer_than=newer_than).version == 7
    for newer_than in (7, 8):
        with pytest.raises(StaleMapError, match=f"map: version 7 is not newer than {newer_than}") as caught:
            open_map_untrusted(document, key=KEY.public_key(), now_s=NOW_S, newer_than=newer_than)
        assert caught.value.version == 7


def test_version_and_time_are_checked_before_the_map_is_read() -> None:
    """To parse a large one takes 100 ms, and anybody can send an old one again."""
    signed = sign1(payload(b"no JSON"), key=KEY)
    assert "is not newer than 7" in error_of(signed, newer_than=7)
    assert "expired 1 s ago" in error_of(signed, now_s=NOW_S + 61)
    assert "in the future" in error_of(signed, now_s=NOW_S - 61)
    assert "the second line is not JSON" in error_of(signed, newer_than=6)
    assert "signature" in error_of(signed[:-1] + bytes([signed[-1] ^ 1]), newer_than=7)


def test_another_key_is_refused() -> None:
    document = sign_map(map_of({}), version=7, issued_at_s=NOW_S, key=generate_private_key(SECP384R1()))
    assert "signature does not verify" in error_of(document)


DEEP = b"[" * 100_000
SIGNED = [
    (b"\xff", "map: the header is not JSON"),
    (b"[]", "map: the header is no JSON object"),
    (b"[" * MAX_HEADER_BYTES, "map: the header is not JSON"),
    (DEEP, "map: the header has 100000 bytes; at most 1024 are read"),
    (b'{"version": 1, "version": 2}', "map: the header is not JSON: a key is given twice"),
    (b'{"version": NaN}', "map: the header is not JSON: NaN is no number"),
    (payload(kind="manifest"), "map: header: kind: 'manifest' should be 'nitro-vpc-map'"),
    (payload(kind=None), "map: header: kind: missing"),
    (payload(more=1), "map: header: more: no such key; the known ones here are kind, version, issued_at_s, lifetime_s"),
    (payload(version=0), "map: header: version: 0 should be greater than or equal to 1"),
    (payload(version="7"), "map: header: version: '7' should be a valid integer"),
    (payload(version=1 << 63), "map: header: version: "),
    (payload(version=None), "map: header: version: missing"),
    (payload(issued_at_s=-1), "map: header: issued_at_s: -1 should be greater than or equal to 0"),
    (payload(issued_at_s="1"), "map: header: issued_at_s: "),
    (payload(lifetime_s=None), "map: header: lifetime_s: missing"),
    (payload(lifetime_s=0), "map: header: lifetime_s: 0 should be greater than 0"),
    (payload(lifetime_s=1e9), "map: header: lifetime_s: "),
    (payload(lifetime_s=61), "map: lifetime_s: 60 is not the header's 61"),
    (json.dumps(HEADER).encode(), "map: the second line is not JSON"),
    (payload(b"\xff"), "map: the second line is not JSON"),
    (payload(b"[]"), "map: the second line is no JSON object"),
    (payload(DEEP), "map: the second line is not JSON"),
    (payload(b"{}\n{}"), "map: the second line is not JSON"),
    (payload(b'{"cards": {}, "cards": {}}'), "map: the second line is not JSON: a key is given twice"),
    (payload(b'{"lifetime_s": ' + b"9" * 5000 + b"}"), "map: the second line is not JSON"),
    (payload({"card": {}}), "map: card: no such key; the known ones here are lifetime_s,"),
    (payload({"vpcs": {"red": {"id": 1}}}), "map: vpcs.red.subnets: missing"),
]


@pytest.mark.parametrize(("content", "wanted"), SIGNED, ids=[wanted for _, wanted in SIGNED])
def test_what_is_signed_is_checked(content: bytes, wanted: str) -> None:
    assert error_of(sign1(content, key=KEY)).startswith(wanted)


def test_what_is_signed_is_consistent() -> None:
    content = two_vpcs()
    content["vpcs"]["red"]["interfaces"]["red-2"]["address"] = "172.31.0.5"
    message = error_of(sign1(payload(content), key=KEY))
    assert message.startswith("map: vpcs.red.interfaces.red-2.address: 172.31.0.5 is also red-1's")


def test_map_that_is_too_large_is_not_signed() -> None:
    content = two_vpcs()
    content["vpcs"]["red"]["subnets"] = {"a": "172.31.0.0/16"}
    content["vpcs"]["red"]["groups"].update({f"group-{number:026}": {} for number in range(16)})
    names = [f"group-{number:026}" for number in range(16)]
    content["vpcs"]["red"]["interfaces"] = {
        f"i{index}": interface(f"172.31.{1 + index // 250}.{1 + index % 250}", port=1 + index, groups=names)
        for index in range(2000)
    }
    with pytest.raises(VpcError, match=r"the map has \d+ bytes as JSON; at most \d+ are sent: make two maps"):
        sign_map(map_of(content), version=7, issued_at_s=NOW_S, key=KEY)


def test_document_that_is_too_large_is_refused() -> None:
    assert "at most" in error_of(sign1(b" " * MAX_DOCUMENT_BYTES, key=KEY))


@given(content=st.binary(max_size=200))
def test_any_second_line_is_refused_with_a_reason(content: bytes) -> None:
    error_of(sign1(payload(content), key=KEY))


@given(content=st.text(max_size=50) | st.recursive(st.integers() | st.text(max_size=5), st.lists).map(json.dumps))
def test_any_payload_is_refused_with_a_reason(content: str) -> None:
    error_of(sign1(content.encode() or b" ", key=KEY))
