"""COSE_Sign1 (RFC 9052) with ES384: a payload and one signature, as AWS Nitro's attestation documents have it.

    message = sign1(payload, key=private_key)
    payload = verify1_untrusted(message, key=public_key)

A message is an array of four: the protected header {1: -35} as a byte string, the unprotected header {}, the payload,
and the signature r || s of 96 bytes. It may have the tag 18; AWS's have none, and neither have ours.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ec import (
    ECDSA,
    SECP384R1,
    EllipticCurvePrivateKey,
    EllipticCurvePublicKey,
)
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature, encode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA384

from nitro_emu.errors import TrustError
from nitro_emu.trust.cbor import MAX_BYTES, dumps, loads_untrusted

TAG: Final = b"\xd2"
"""The tag 18, which marks a COSE_Sign1 message, as one byte."""

ALGORITHM: Final = 1
"""The header parameter that names the algorithm."""

ES384: Final = -35
"""ECDSA on P-384 with SHA-384."""

COORDINATE_BYTES: Final = 48
SIGNATURE_BYTES: Final = 2 * COORDINATE_BYTES

MAX_ITEMS: Final = 16
"""Of a message, which has 5, and of its protected header, which has 3: more are refused unread."""

_PROTECTED: Final = dumps({ALGORITHM: ES384})


@dataclass(frozen=True, slots=True)
class Sign1:
    """A message whose form is right; its signature is not verified yet."""

    payload: bytes
    protected: bytes
    """The protected header as it was signed."""

    signature: bytes
    """r || s, 96 bytes."""


def sign1(payload: bytes, *, key: EllipticCurvePrivateKey) -> bytes:
    """Return the message of a payload, without a tag. Raises TrustError for a key that is not of P-384."""
    _check_curve(key)
    r, s = decode_dss_signature(key.sign(_to_be_signed(_PROTECTED, payload), ECDSA(SHA384())))
    signature = r.to_bytes(COORDINATE_BYTES) + s.to_bytes(COORDINATE_BYTES)
    return dumps([_PROTECTED, {}, payload, signature])


def parse_untrusted(message: bytes, *, max_bytes: int = MAX_BYTES) -> Sign1:
    """Return the parts of a message, with or without the tag 18. Raises TrustError; does not verify the signature."""
    parts = loads_untrusted(
        message.removeprefix(TAG), name="the COSE message", max_bytes=max_bytes, max_items=MAX_ITEMS
    )
    if not isinstance(parts, list) or len(parts) != 4:
        raise TrustError("the COSE message is no array of 4 (protected, unprotected, payload, signature)")
    protected, unprotected, payload, signature = parts
    if not isinstance(protected, bytes):
        raise TrustError("the COSE message's protected header is no byte string")
    _check_protected(protected)
    if unprotected != {}:
        raise TrustError("the COSE message's unprotected header is no empty map")
    if not isinstance(payload, bytes) or not payload:
        raise TrustError("the COSE message has no payload")
    if not isinstance(signature, bytes) or len(signature) != SIGNATURE_BYTES:
        raise TrustError(f"the COSE message's signature is no byte string of {SIGNATURE_BYTES}, as ES384 has it")
    return Sign1(payload=payload, protected=protected, signature=signature)


def check_signature(message: Sign1, *, key: EllipticCurvePublicKey) -> None:
    """Raise TrustError unless the message was signed with this key, which is of P-384."""
    _check_curve(key)
    r, s = message.signature[:COORDINATE_BYTES], message.signature[COORDINATE_BYTES:]
    der = encode_dss_signature(int.from_bytes(r), int.from_bytes(s))
    try:
        key.verify(der, _to_be_signed(message.protected, message.payload), ECDSA(SHA384()))
    except InvalidSignature:
        raise TrustError("the COSE message's signature does not verify with the signer's key") from None


def verify1_untrusted(message: bytes, *, key: EllipticCurvePublicKey, max_bytes: int = MAX_BYTES) -> bytes:
    """Return the payload of a message that was signed with this key. Raises TrustError, which names the reason."""
    parsed = parse_untrusted(message, max_bytes=max_bytes)
    check_signature(parsed, key=key)
    return parsed.payload


def _to_be_signed(protected: bytes, payload: bytes) -> bytes:
    """Return RFC 9052's Sig_structure, without external data."""
    return dumps(["Signature1", protected, b"", payload])


def _check_protected(protected: bytes) -> None:
    if not protected:
        raise TrustError("the COSE message's protected header is empty, so it names no algorithm")
    header = loads_untrusted(protected, name="the COSE message's protected header", max_items=MAX_ITEMS)
    if not isinstance(header, dict):
        raise TrustError("the COSE message's protected header is no map")
    algorithm = header.get(ALGORITHM)
    if isinstance(algorithm, bool) or algorithm != ES384:
        raise TrustError(f"the COSE message's algorithm is {algorithm!r}, not {ES384} (ES384)"[:200])
    if len(header) != 1:
        raise TrustError("the COSE message's protected header has more than the algorithm")


def _check_curve(key: EllipticCurvePrivateKey | EllipticCurvePublicKey) -> None:
    if not isinstance(key.curve, SECP384R1):
        raise TrustError(f"the key is of {key.curve.name}; ES384 needs one of secp384r1 (P-384)")
