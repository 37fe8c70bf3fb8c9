"""COSE_Sign1: against two other implementations, and what is refused."""

from __future__ import annotations

import cbor2
import cwt
import pytest
from cryptography.hazmat.primitives.asymmetric.ec import (
    SECP256R1,
    SECP384R1,
    EllipticCurvePublicKey,
    generate_private_key,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from pycose.keys.curves import P384
from pycose.keys.ec2 import EC2Key
from pycose.messages.sign1message import Sign1Message

from nitro_emu.errors import TrustError
from nitro_emu.trust.cose import SIGNATURE_BYTES, TAG, parse_untrusted, sign1, verify1_untrusted
from nitro_emu.trust.documents import decode_untrusted
from nitro_emu.trust.pki import private_key_pem, public_key_of, public_key_pem
from nitro_emu.trust.verify import chain_untrusted
from tests.nitro_emu.trust.samples import REAL, Real

KEY = generate_private_key(SECP384R1())
PUBLIC = KEY.public_key()
PROTECTED = bytes.fromhex("a1013822")
SIGNATURE = bytes(SIGNATURE_BYTES)


def pycose_verifies(message: bytes, *, key: EllipticCurvePublicKey) -> bool:
    numbers = key.public_numbers()
    parsed = Sign1Message.decode(TAG + message)
    parsed.key = EC2Key(crv=P384, x=numbers.x.to_bytes(48), y=numbers.y.to_bytes(48))
    return bool(parsed.verify_signature())


def cwt_payload(message: bytes, *, key: EllipticCurvePublicKey) -> object:
    """Return the payload of a message that cwt verifies; it takes tagged ones only."""
    return cwt.COSE.new().decode(TAG + message, cwt.COSEKey.from_pem(public_key_pem(key), alg="ES384"))


@given(st.binary(min_size=1, max_size=500))
@settings(deadline=None)
def test_round_trip(payload: bytes) -> None:
    message = sign1(payload, key=KEY)
    assert verify1_untrusted(message, key=PUBLIC) == payload
    assert verify1_untrusted(TAG + message, key=PUBLIC) == payload
    parsed = parse_untrusted(message)
    assert (parsed.payload, parsed.protected, len(parsed.signature)) == (payload, PROTECTED, 96)


def test_form_is_that_of_aws() -> None:
    message = sign1(b"payload", key=KEY)
    assert message.startswith(bytes.fromhex("8444a1013822a047") + b"payload" + bytes.fromhex("5860"))
    assert all(real.signed.startswith(bytes.fromhex("8444a1013822a059")) for real in REAL)


@pytest.mark.parametrize("payload", [b"x", b"payload" * 1000])
def test_others_verify_our_messages(payload: bytes) -> None:
    message = sign1(payload, key=KEY)
    assert pycose_verifies(message, key=PUBLIC)
    assert cwt_payload(message, key=PUBLIC) == payload


@pytest.mark.parametrize("real", REAL, ids=lambda real: real.name)
def test_others_and_we_verify_real_documents(real: Real) -> None:
    payload = parse_untrusted(real.signed).payload
    key = public_key_of(chain_untrusted(decode_untrusted(payload))[-1])
    assert verify1_untrusted(real.signed, key=key) == payload
    assert cwt_payload(real.signed, key=key) == payload
    assert pycose_verifies(real.signed, key=key)


def test_we_verify_others_messages() -> None:
    made = cwt.COSE.new(alg_auto_inclusion=True).encode_and_sign(
        b"payload", cwt.COSEKey.from_pem(private_key_pem(KEY), alg="ES384")
    )
    assert verify1_untrusted(made, key=PUBLIC) == b"payload"


def test_every_flipped_bit_is_refused() -> None:
    message = sign1(b"payload", key=KEY)
    for bit in range(len(message) * 8):
        flipped = bytearray(message)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(TrustError):
            verify1_untrusted(bytes(flipped), key=PUBLIC)


def test_every_truncation_is_refused() -> None:
    message = sign1(b"payload", key=KEY)
    for size in range(len(message)):
        with pytest.raises(TrustError):
            verify1_untrusted(message[:size], key=PUBLIC)


MALFORMED: dict[str, tuple[object, str]] = {
    "no array": ({}, "is no array of 4"),
    "three": ([PROTECTED, {}, b"x"], "is no array of 4"),
    "five": ([PROTECTED, {}, b"x", SIGNATURE, b""], "is no array of 4"),
    "protected map": ([{1: -35}, {}, b"x", SIGNATURE], "protected header is no byte string"),
    "protected null": ([None, {}, b"x", SIGNATURE], "protected header is no byte string"),
    "protected empty": ([b"", {}, b"x", SIGNATURE], "protected header is empty, so it names no algorithm"),
    "protected no map": ([b"\x80", {}, b"x", SIGNATURE], "protected header is no map"),
    "protected no CBOR": ([b"\xa1", {}, b"x", SIGNATURE], "protected header is no strict CBOR"),
    "no algorithm": ([b"\xa0", {}, b"x", SIGNATURE], "algorithm is None, not -35"),
    "ES256": ([bytes.fromhex("a10126"), {}, b"x", SIGNATURE], "algorithm is -7, not -35"),
    "algorithm true": ([bytes.fromhex("a101f5"), {}, b"x", SIGNATURE], "algorithm is True, not -35"),
    "algorithm in text": ([cbor2.dumps({1: "ES384"}), {}, b"x", SIGNATURE], "algorithm is 'ES384', not -35"),
    "long algorithm": ([cbor2.dumps({1: "E" * 9999}), {}, b"x", SIGNATURE], "algorithm is 'EEE"),
    "critical": ([cbor2.dumps({1: -35, 2: [4]}), {}, b"x", SIGNATURE], "protected header has more than the algorithm"),
    "unprotected null": ([PROTECTED, None, b"x", SIGNATURE], "unprotected header is no empty map"),
    "unprotected list": ([PROTECTED, [], b"x", SIGNATURE], "unprotected header is no empty map"),
    "kid unprotected": ([PROTECTED, {4: b"11"}, b"x", SIGNATURE], "unprotected header is no empty map"),
    "detached": ([PROTECTED, {}, None, SIGNATURE], "has no payload"),
    "payload empty": ([PROTECTED, {}, b"", SIGNATURE], "has no payload"),
    "payload text": ([PROTECTED, {}, "x", SIGNATURE], "has no payload"),
    "no signature": ([PROTECTED, {}, b"x", b""], "signature is no byte string of 96"),
    "short signature": ([PROTECTED, {}, b"x", bytes(64)], "signature is no byte string of 96"),
    "DER signature": ([PROTECTED, {}, b"x", bytes(102)], "signature is no byte string of 96"),
    "zero signature": ([PROTECTED, {}, b"x", SIGNATURE], "signature does not verify"),
    "huge signature": ([PROTECTED, {}, b"x", b"\xff" * 96], "signature does not verify"),
    "many items": ([PROTECTED, {}, b"x", [0] * 100], "has too many items"),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_refusals(name: str) -> None:
    value, reason = MALFORMED[name]
    with pytest.raises(TrustError, match=reason) as caught:
        verify1_untrusted(cbor2.dumps(value), key=PUBLIC)
    assert len(str(caught.value)) < 250


@pytest.mark.parametrize("tag", [17, 61, 98])
def test_other_tags_are_refused(tag: int) -> None:
    message = cbor2.loads(sign1(b"x", key=KEY))
    with pytest.raises(TrustError, match="it has a tag"):
        verify1_untrusted(cbor2.dumps(cbor2.CBORTag(tag, message)), key=PUBLIC)
    with pytest.raises(TrustError, match="it has a tag"):
        verify1_untrusted(TAG + TAG + sign1(b"x", key=KEY), key=PUBLIC)


def test_other_keys_are_refused() -> None:
    with pytest.raises(TrustError, match="signature does not verify"):
        verify1_untrusted(sign1(b"x", key=KEY), key=generate_private_key(SECP384R1()).public_key())
    small = generate_private_key(SECP256R1())
    with pytest.raises(TrustError, match="the key is of secp256r1; ES384 needs one of secp384r1"):
        sign1(b"x", key=small)
    with pytest.raises(TrustError, match="the key is of secp256r1"):
        verify1_untrusted(sign1(b"x", key=KEY), key=small.public_key())


def test_size_is_bounded() -> None:
    message = sign1(bytes(1000), key=KEY)
    assert verify1_untrusted(message, key=PUBLIC, max_bytes=len(message))
    with pytest.raises(TrustError, match=f"the COSE message has {len(message)} bytes; at most 1000 are accepted"):
        verify1_untrusted(message, key=PUBLIC, max_bytes=1000)
