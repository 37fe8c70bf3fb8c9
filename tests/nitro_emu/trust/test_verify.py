"""Verification: real documents hold at their time, and each thing that can be wrong is refused with its reason."""

from __future__ import annotations

import base64
import random
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import cbor2
import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP384R1, generate_private_key
from hypothesis import given, settings
from hypothesis import strategies as st

from nitro_emu.errors import TrustError
from nitro_emu.trust.cose import sign1
from nitro_emu.trust.documents import NITROTPM_PCRS, encode, sign
from nitro_emu.trust.pki import Authority
from nitro_emu.trust.verify import AWS_ROOT_SHA256, Expectation, aws_root_untrusted, is_debug, verify_untrusted
from tests.nitro_emu.trust.samples import (
    HOUR,
    NOW,
    REAL,
    SELF_SIGNED,
    Real,
    authorities,
    aws_root,
    expectation,
    issue,
    reason,
    signed,
    stated,
)

Chain = tuple[Authority, ...]
DAY = timedelta(days=1)


def of_aws(real: Real, **changes: object) -> Expectation:
    expected = Expectation(root=aws_root(), at=real.at, allow_debug=real.debug)
    return replace(expected, **changes)  # type: ignore[arg-type]


# AWS's documents


@pytest.mark.parametrize("real", REAL, ids=lambda real: real.name)
def test_real_documents_hold_at_their_time(real: Real) -> None:
    found = verify_untrusted(real.signed, expected=of_aws(real))
    assert found.module_id == real.module_id
    assert is_debug(found) == real.debug
    tagged = verify_untrusted(b"\xd2" + real.signed, expected=of_aws(real))
    assert tagged == found
    fields = {"pcrs": found.pcrs, "nonce": found.nonce, "public_key": found.public_key, "user_data": found.user_data}
    assert verify_untrusted(real.signed, expected=of_aws(real, **fields)) == found
    assert aws_root_untrusted(real.signed) == aws_root()


@pytest.mark.parametrize("real", REAL, ids=lambda real: real.name)
@pytest.mark.parametrize(("off", "word"), [(DAY, "no longer at"), (-DAY, "not yet at"), (3 * HOUR, "no longer at")])
def test_real_documents_fail_at_other_times(real: Real, off: timedelta, word: str) -> None:
    found = reason(real.signed, of_aws(real, at=real.at + off))
    assert f"{word} {(real.at + off):%Y-%m-%dT%H:%M:%SZ}" in found
    assert "is valid 20" in found


def test_debug_mode_is_refused_unless_allowed() -> None:
    for real in REAL:
        if real.debug:
            assert reason(real.signed, of_aws(real, allow_debug=False)).startswith("PCR0, PCR1 and PCR2 are zero")


def test_self_signed_document_is_refused() -> None:
    document = base64.b64decode(SELF_SIGNED.read_bytes(), validate=True)
    expected = Expectation(root=aws_root(), at=datetime(2024, 4, 18, tzinfo=UTC))
    assert reason(document, expected) == "the COSE message's unprotected header is no empty map"
    with pytest.raises(TrustError, match="unprotected header"):
        aws_root_untrusted(document)


def test_root_of_aws_is_told_from_others() -> None:
    assert "the document's root is 'aws.nitro-enclaves'" in reason(REAL[2].signed, expectation(at=REAL[2].at))
    assert f"not the trusted 'aws.nitro-enclaves' ({AWS_ROOT_SHA256})" in reason(signed(), expectation(root=aws_root()))
    with pytest.raises(TrustError, match=f"'root' .*, not that of AWS Nitro Enclaves \\({AWS_ROOT_SHA256}\\)"):
        aws_root_untrusted(signed())


# Our documents


def test_our_documents_hold() -> None:
    everything = expectation(pcrs=stated().pcrs, nonce=b"nonce", public_key=b"public key", user_data=b"user data")
    assert verify_untrusted(signed(), expected=everything) == stated()


def test_documents_hold_from_first_to_last_second() -> None:
    for at in (NOW, NOW + 3 * HOUR):
        assert verify_untrusted(signed(), expected=expectation(at=at)) == stated()
    assert "'root' is valid 2026-03-04T05:06:07Z" in reason(signed(), expectation(at=NOW - timedelta(microseconds=1)))
    assert "'leaf' is valid 2026-03-04T05:06:07Z to 2026-03-04T08:06:07Z, no longer at 2026-03-04T08:06:08Z" in reason(
        signed(), expectation(at=NOW + 3 * HOUR + timedelta(seconds=1))
    )


def test_documents_of_nitrotpm_hold_and_have_no_debug_mode() -> None:
    pcrs = {0: bytes(48), 1: bytes(48), 2: bytes(48), 4: b"4" * 48, 23: b"7" * 48}
    document = signed(pcrs_name=NITROTPM_PCRS, pcrs=pcrs)
    assert verify_untrusted(document, expected=expectation(pcrs={4: b"4" * 48})).pcrs == pcrs


def compact() -> tuple[bytes, Expectation]:
    """A document with a root, a leaf and three PCRs."""
    root = issue(None, "r", ca=True, usage="key_cert_sign")
    chain = (root, issue(root, "l"))
    pcrs = {0: bytes(range(32))}
    return signed(chain, pcrs=pcrs, public_key=None, user_data=None, nonce=b"n"), expectation(chain)


def test_every_flipped_bit_is_refused() -> None:
    document, expected = compact()
    assert verify_untrusted(document, expected=expected).nonce == b"n"
    for bit in range(len(document) * 8):
        flipped = bytearray(document)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(TrustError):
            verify_untrusted(bytes(flipped), expected=expected)


def test_flipped_bits_of_certificates_that_are_signed_anew_are_refused() -> None:
    """Whoever has a leaf's key can sign any bytes as certificates: they reach the parser of X.509."""
    chain = authorities()
    dice = random.Random(19)
    for _ in range(600):
        ders = [bytearray(authority.der) for authority in chain]
        der = dice.choice(ders)
        der[dice.randrange(len(der))] ^= 1 << dice.randrange(8)
        bundle = tuple(bytes(der) for der in ders)
        document = sign(stated(cabundle=bundle[:-1], certificate=bundle[-1]), key=chain[-1].private_key)
        reason(document, expectation())


# What is expected of the fields


EXPECTED: tuple[tuple[dict[str, object], dict[str, object], str], ...] = (
    ({}, {"pcrs": {3: bytes(48)}}, f"PCR3 is {'04' * 48}; {'00' * 48} is expected"),
    ({}, {"pcrs": {0: b"\1" * 48, 5: b"\1" * 48, 6: b""}}, f"PCR5 is {'06' * 48}; {'01' * 48} is expected"),
    ({}, {"pcrs": {16: bytes(48)}}, f"the document has no PCR16; {'00' * 48} is expected"),
    ({}, {"nonce": b"other"}, "the nonce is 6e6f6e6365; 6f74686572 is expected"),
    ({}, {"nonce": b""}, "the nonce is 6e6f6e6365; empty is expected"),
    ({"nonce": b""}, {"nonce": b"\1"}, "the nonce is empty; 01 is expected"),
    ({"nonce": None}, {"nonce": b"\1"}, "the document has no nonce; 01 is expected"),
    ({"nonce": None}, {"nonce": b""}, "the document has no nonce; empty is expected"),
    (
        {},
        {"public_key": b"x" * 100},
        f"the public_key is {b'public key'.hex()}; {'78' * 16}... (100 bytes) is expected",
    ),
    ({"public_key": None}, {"public_key": b"\1"}, "the document has no public_key; 01 is expected"),
    ({}, {"user_data": b"\1"}, f"the user_data is {b'user data'.hex()}; 01 is expected"),
    ({"user_data": None}, {"user_data": b"\1"}, "the document has no user_data; 01 is expected"),
    ({"pcrs": {0: bytes(48), 1: bytes(48), 2: bytes(48), 3: b"x" * 48}}, {}, "PCR0, PCR1 and PCR2 are zero"),
    ({"pcrs": {3: b"x" * 48}}, {}, "PCR0, PCR1 and PCR2 are zero"),
)


@pytest.mark.parametrize(("changes", "expected", "why"), EXPECTED)
def test_expectations(changes: dict[str, object], expected: dict[str, object], why: str) -> None:
    assert reason(signed(None, **changes), expectation(None, **expected)).startswith(why)


def test_one_pcr_of_debug_mode_that_is_not_zero_is_production() -> None:
    pcrs = {0: bytes(48), 1: bytes(48), 2: bytes(47) + b"\1"}
    assert verify_untrusted(signed(pcrs=pcrs), expected=expectation()).pcrs == pcrs


@pytest.mark.parametrize(
    ("milliseconds", "holds"),
    [(-1, False), (0, True), (3 * 3600 * 1000, True), (3 * 3600 * 1000 + 1, False), (10**15, False), (2**63, False)],
)
def test_timestamp_is_within_the_leafs_time(milliseconds: int, holds: bool) -> None:  # noqa: FBT001
    made = int(NOW.timestamp()) * 1000 + milliseconds
    if holds:
        assert verify_untrusted(signed(timestamp_ms=made), expected=expectation()).timestamp_ms == made
    else:
        found = reason(signed(timestamp_ms=made), expectation())
        assert found == (
            f"the document's timestamp {made} ms is not within its certificate's"
            " 2026-03-04T05:06:07Z to 2026-03-04T08:06:07Z"
        )


# One error of each layer: the message's are in test_cose, the fields' in test_documents


def unsigned(**changes: object) -> bytes:
    """A document with fields that our encoder refuses, signed all the same."""
    chain = authorities()
    fields = cbor2.loads(encode(stated()))
    return sign1(cbor2.dumps({**fields, **changes}), key=chain[-1].private_key)


def of_another_key() -> bytes:
    return sign(stated(), key=generate_private_key(SECP384R1()))


NEGATIVES: dict[str, tuple[Callable[[], bytes], str]] = {
    "no COSE_Sign1": (lambda: b"{}", "the COSE message is no strict CBOR"),
    "a missing field": (lambda: unsigned(certificate=None), "the document's field certificate is missing"),
    "another key's signature": (of_another_key, "the COSE message's signature does not verify with the signer's key"),
    "no certificate": (lambda: unsigned(certificate=b"x"), "the document's certificate is no certificate"),
    "no certificate above": (
        lambda: unsigned(cabundle=[authorities()[0].der, b"x"]),
        "the document's cabundle[1] is no certificate that can be read",
    ),
    "a huge document": (lambda: bytes(1 << 20), "the COSE message has 1048576 bytes; at most 16640 are accepted"),
}


@pytest.mark.parametrize("name", NEGATIVES)
def test_negatives(name: str) -> None:
    make, why = NEGATIVES[name]
    assert reason(make(), expectation()).startswith(why)


# Anything


@given(st.binary(max_size=200))
@settings(deadline=None)
def test_any_bytes_are_refused(data: bytes) -> None:
    reason(data, expectation())


@given(st.binary(max_size=200))
@settings(deadline=None)
def test_any_signed_bytes_are_refused(payload: bytes) -> None:
    reason(sign1(payload or b"\x00", key=authorities()[-1].private_key), expectation())


@given(st.binary(min_size=1, max_size=300))
@settings(deadline=None)
def test_any_bytes_as_certificates_are_refused(data: bytes) -> None:
    for changes in ({"certificate": data}, {"cabundle": (data,)}, {"cabundle": (authorities()[0].der, data)}):
        reason(sign(stated(None, **changes), key=authorities()[-1].private_key), expectation())
