"""nitro_emu.vpc.document: a map is believed if it was signed, is not expired, and not of the future."""

from __future__ import annotations

import json
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, SECP384R1, generate_private_key
from hypothesis import given
from hypothesis import strategies as st

from nitro_emu.errors import VpcError
from nitro_emu.trust.cose import sign1
from nitro_emu.vpc.document import MAX_DOCUMENT_BYTES, open_map_untrusted, sign_map
from tests.nitro_emu.vpc.maps import EVERY_KEY, interface, map_of, peered_vpcs, two_vpcs

KEY = generate_private_key(SECP384R1())
NOW_S = 1_795_568_461.25


def payload(**changes: object) -> dict[str, Any]:
    content = {"kind": "nitro-vpc-map", "version": 7, "issued_at_s": NOW_S, "map": two_vpcs()}
    return {key: value for key, value in {**content, **changes}.items() if value is not None}


def error_of(document: bytes, *, now_s: float = NOW_S) -> str:
    with pytest.raises(VpcError) as caught:
        open_map_untrusted(document, key=KEY.public_key(), now_s=now_s)
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


def test_every_flipped_bit_is_refused() -> None:
    content = {"vpcs": {"red": {"id": 1, "subnets": {"a": "172.31.0.0/24"}}}}
    document = sign_map(map_of(content), version=7, issued_at_s=NOW_S, key=KEY)
    open_map_untrusted(document, key=KEY.public_key(), now_s=NOW_S)
    for bit in range(8 * len(document)):
        flipped = bytearray(document)
        flipped[bit // 8] ^= 1 << bit % 8
        error_of(bytes(flipped))


def test_every_shortened_and_lengthened_document_is_refused() -> None:
    document = sign_map(map_of({}), version=7, issued_at_s=NOW_S, key=KEY)
    for length in range(len(document)):
        error_of(document[:length])
    error_of(document + b"\0")


def test_another_key_is_refused() -> None:
    document = sign_map(map_of({}), version=7, issued_at_s=NOW_S, key=generate_private_key(SECP384R1()))
    assert "signature does not verify" in error_of(document)


def test_key_of_another_curve_is_refused() -> None:
    with pytest.raises(VpcError, match="secp256r1"):
        sign_map(map_of({}), version=7, issued_at_s=NOW_S, key=generate_private_key(SECP256R1()))


SIGNED = [
    (b"\xff", "the payload is not JSON"),
    (b"[]", "the payload is no JSON object"),
    (b"[" * 100_000, "the payload is not JSON"),
    (b'{"version": 1, "version": 2}', "the payload is not JSON: a key is given twice"),
    (b'{"version": NaN}', "the payload is not JSON: NaN is no number"),
    (b'{"version": ' + b"9" * 5000 + b"}", "the payload is not JSON"),
    (json.dumps(payload(kind="manifest")).encode(), "map: kind: 'manifest' should be 'nitro-vpc-map'"),
    (
        json.dumps(payload(more=1)).encode(),
        "map: more: no such key; the known ones here are kind, version, issued_at_s",
    ),
    (json.dumps(payload(version=0)).encode(), "map: version: 0 should be greater than or equal to 1"),
    (json.dumps(payload(version="7")).encode(), "map: version: '7' should be a valid integer"),
    (json.dumps(payload(version=1 << 63)).encode(), "map: version: "),
    (json.dumps(payload(version=None)).encode(), "map: version: missing"),
    (json.dumps(payload(issued_at_s=-1)).encode(), "map: issued_at_s: -1 should be greater than or equal to 0"),
    (json.dumps(payload(issued_at_s="1")).encode(), "map: issued_at_s: "),
    (json.dumps(payload(map={"card": {}})).encode(), "map: map.card: no such key; the known ones here are lifetime_s,"),
    (json.dumps(payload(map={"vpcs": {"red": {"id": 1}}})).encode(), "map: map.vpcs.red.subnets: missing"),
]


@pytest.mark.parametrize(("content", "wanted"), SIGNED, ids=[wanted for _, wanted in SIGNED])
def test_what_is_signed_is_checked(content: bytes, wanted: str) -> None:
    assert wanted in error_of(sign1(content, key=KEY))


def test_what_is_signed_is_consistent() -> None:
    content = two_vpcs()
    content["vpcs"]["red"]["interfaces"]["red-2"]["address"] = "172.31.0.5"
    message = error_of(sign1(json.dumps(payload(map=content)).encode(), key=KEY))
    assert message.startswith("map: map: vpcs.red.interfaces.red-2.address: 172.31.0.5 is also red-1's")


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


@given(data=st.binary(max_size=200))
def test_any_bytes_are_refused_with_a_reason(data: bytes) -> None:
    error_of(data)


@given(content=st.text(max_size=50) | st.recursive(st.integers() | st.text(max_size=5), st.lists).map(json.dumps))
def test_any_payload_is_refused_with_a_reason(content: str) -> None:
    error_of(sign1(content.encode() or b" ", key=KEY))
