"""The attestation document: AWS's form byte by byte, and each limit of it."""

from __future__ import annotations

import cbor2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nitro_emu.errors import TrustError
from nitro_emu.trust.cose import parse_untrusted
from nitro_emu.trust.documents import (
    MAX_DOCUMENT_BYTES,
    MAX_FIELD_BYTES,
    MAX_PAYLOAD_BYTES,
    NITROTPM_PCRS,
    PCRS,
    AttestationDocument,
    decode_untrusted,
    encode,
    sign,
)
from tests.nitro_emu.trust.samples import REAL, Real, authorities, stated

ORDER = ["module_id", "digest", "timestamp", "pcrs", "certificate", "cabundle", "public_key", "user_data", "nonce"]
NAMES = {"timestamp_ms": "timestamp"}
"""Of fields whose key in the document is another."""

CERTIFICATES = st.binary(min_size=1, max_size=MAX_FIELD_BYTES)
BLOBS = st.none() | st.binary(max_size=MAX_FIELD_BYTES)
DOCUMENTS = st.builds(
    AttestationDocument,
    module_id=st.text(min_size=1, max_size=80),
    timestamp_ms=st.integers(1, (1 << 64) - 1),
    pcrs=st.dictionaries(
        st.integers(0, 31),
        st.sampled_from([32, 48, 64]).flatmap(lambda n: st.binary(min_size=n, max_size=n)),
        min_size=1,
    ),
    certificate=CERTIFICATES,
    cabundle=st.lists(CERTIFICATES, min_size=1, max_size=4).map(tuple),
    public_key=st.none() | CERTIFICATES,
    user_data=BLOBS,
    nonce=BLOBS,
    pcrs_name=st.sampled_from([PCRS, NITROTPM_PCRS]),
)


def as_map(document: AttestationDocument) -> dict[str, object]:
    """The payload's map, without any check."""
    decoded = cbor2.loads(encode(document))
    assert isinstance(decoded, dict)
    return decoded


@given(DOCUMENTS)
@settings(deadline=None)
def test_round_trip(document: AttestationDocument) -> None:
    assert decode_untrusted(encode(document)) == document


@pytest.mark.parametrize("real", REAL, ids=lambda real: real.name)
def test_real_documents_encode_to_the_same_bytes(real: Real) -> None:
    payload = parse_untrusted(real.signed).payload
    document = decode_untrusted(payload)
    assert encode(document) == payload
    assert document.module_id == real.module_id
    assert len(document.cabundle) == 4
    assert sorted(document.pcrs) == list(range(16))
    assert len(real.signed) <= MAX_DOCUMENT_BYTES


def test_keys_are_in_aws_order_with_nulls() -> None:
    found = as_map(stated(public_key=None, user_data=None, nonce=None))
    assert list(found) == ORDER
    assert [found[name] for name in ORDER[-3:]] == [None, None, None]
    shuffled = dict.fromkeys((2, 0, 1), bytes(48))
    pcrs = as_map(stated(pcrs=shuffled))["pcrs"]
    assert isinstance(pcrs, dict)
    assert list(pcrs) == [0, 1, 2]


def test_absent_fields_may_be_left_out() -> None:
    found = {name: value for name, value in as_map(stated()).items() if name not in ORDER[-3:]}
    assert decode_untrusted(cbor2.dumps(found)) == stated(public_key=None, user_data=None, nonce=None)


def test_documents_of_nitrotpm() -> None:
    pcrs = {index: bytes([index]) * 48 for index in (*range(17), 23)}
    document = stated(pcrs_name=NITROTPM_PCRS, pcrs=pcrs, module_id="i-0a-tpm0000000000000000")
    assert list(as_map(document)) == [NITROTPM_PCRS if name == PCRS else name for name in ORDER]
    assert decode_untrusted(encode(document)) == document


BIG = b"x" * (MAX_FIELD_BYTES + 1)
LIMITS: tuple[tuple[str, object, str], ...] = (
    ("module_id", "", "module_id is ''; it must be a string that is not empty"),
    ("module_id", 5, "module_id is 5; it must be a string that is not empty"),
    ("module_id", b"x", "module_id is a byte string of 1; it must be a string"),
    ("digest", "SHA256", "digest is 'SHA256'; it must be 'SHA384'"),
    ("digest", "D" * 10_000, "digest is 'DDD"),
    ("timestamp_ms", 0, "timestamp is 0; it must be a number of ms"),
    ("timestamp_ms", -1, "timestamp is -1; it must be a number of ms"),
    ("timestamp_ms", True, "timestamp is True; it must be a number of ms"),
    ("timestamp_ms", 1.5, "timestamp is 1.5; it must be a number of ms"),
    ("timestamp_ms", "now", "timestamp is 'now'; it must be a number of ms"),
    ("pcrs", {}, "pcrs is no map of 1 to 32 measurements"),
    ("pcrs", [], "pcrs is no map of 1 to 32 measurements"),
    ("pcrs", {index: bytes(48) for index in range(33)}, "pcrs is no map of 1 to 32 measurements"),
    ("pcrs", {32: bytes(48)}, "pcrs has the index 32; it must be 0 to 31"),
    ("pcrs", {-1: bytes(48)}, "pcrs has the index -1; it must be 0 to 31"),
    ("pcrs", {"0": bytes(48)}, "pcrs has the index '0'; it must be 0 to 31"),
    ("pcrs", {0: b""}, "PCR0 is a byte string of 0; it must have 32, 48 or 64 bytes"),
    ("pcrs", {0: bytes(47)}, "PCR0 is a byte string of 47; it must have 32, 48 or 64 bytes"),
    ("pcrs", {0: bytes(96)}, "PCR0 is a byte string of 96; it must have 32, 48 or 64 bytes"),
    ("pcrs", {0: None}, "PCR0 is None; it must have 32, 48 or 64 bytes"),
    ("pcrs", {0: "x" * 48}, "PCR0 is 'xxx"),
    ("certificate", b"", "certificate is a byte string of 0; it must have 1 to 1024 bytes"),
    ("certificate", BIG, "certificate is a byte string of 1025; it must have 1 to 1024 bytes"),
    ("certificate", "PEM", "certificate is 'PEM'; it must have 1 to 1024 bytes"),
    ("cabundle", (), "cabundle is empty; it must have the root at least"),
    ("cabundle", (b"",), r"cabundle\[0\] is a byte string of 0; it must have 1 to 1024 bytes"),
    ("cabundle", (b"x", BIG), r"cabundle\[1\] is a byte string of 1025; it must have 1 to 1024 bytes"),
    ("cabundle", (None,), r"cabundle\[0\] is None; it must have 1 to 1024 bytes"),
    ("cabundle", ({},), r"cabundle\[0\] is a map of 0; it must have 1 to 1024 bytes"),
    ("public_key", b"", "public_key is a byte string of 0; it must have 1 to 1024 bytes"),
    ("public_key", BIG, "public_key is a byte string of 1025; it must have 1 to 1024 bytes"),
    ("public_key", "key", "public_key is 'key'; it must have 1 to 1024 bytes"),
    ("user_data", BIG, "user_data is a byte string of 1025; it must have 0 to 1024 bytes"),
    ("user_data", [1, 2], "user_data is a list of 2; it must have 0 to 1024 bytes"),
    ("nonce", BIG, "nonce is a byte string of 1025; it must have 0 to 1024 bytes"),
    ("nonce", False, "nonce is False; it must have 0 to 1024 bytes"),
)


@pytest.mark.parametrize(("field", "value", "reason"), LIMITS)
def test_limits_of_what_is_read(field: str, value: object, reason: str) -> None:
    found = as_map(stated())
    found[NAMES.get(field, field)] = value
    with pytest.raises(TrustError, match=f"^the document's {reason}") as caught:
        decode_untrusted(cbor2.dumps(found))
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(("field", "value", "reason"), LIMITS)
def test_limits_of_what_is_written(field: str, value: object, reason: str) -> None:
    with pytest.raises(TrustError, match=f"^the document's {reason}"):
        sign(stated(None, **{field: value}), key=authorities()[-1].private_key)


def test_limits_that_are_just_kept() -> None:
    most = b"x" * MAX_FIELD_BYTES
    document = stated(
        certificate=most,
        cabundle=(b"x", most),
        public_key=most,
        user_data=most,
        nonce=most,
        pcrs={index: bytes(64) for index in range(32)},
        timestamp_ms=(1 << 64) - 1,
    )
    assert decode_untrusted(encode(document)) == document
    least = stated(certificate=b"x", cabundle=(b"x",), public_key=b"x", user_data=b"", nonce=b"", timestamp_ms=1)
    assert decode_untrusted(encode(least)) == least


def test_payload_is_bounded() -> None:
    many = stated(cabundle=(b"x" * MAX_FIELD_BYTES,) * 16)
    with pytest.raises(TrustError, match=rf"the document has \d+ bytes; at most {MAX_PAYLOAD_BYTES} fit"):
        encode(many)
    with pytest.raises(TrustError, match="the document has 16385 bytes; at most 16384 are accepted"):
        decode_untrusted(bytes(MAX_PAYLOAD_BYTES + 1))


@pytest.mark.parametrize("name", ORDER[:-3])
def test_required_fields(name: str) -> None:
    found = as_map(stated())
    for missing in ({**found, name: None}, {key: value for key, value in found.items() if key != name}):
        with pytest.raises(TrustError, match=f"the document's field {name} is missing"):
            decode_untrusted(cbor2.dumps(missing))


def test_fields_that_are_not_known() -> None:
    names: tuple[tuple[object, str], ...] = (
        ("extra", "'extra'"),
        (7, "7"),
        (b"x", "a byte string of 1"),
        ("e" * 500, "'eeee"),
    )
    for name, shown in names:
        found: dict[object, object] = dict(as_map(stated()).items())
        found[name] = 1
        with pytest.raises(TrustError, match=f"has a field {shown}.*, which is not known"):
            decode_untrusted(cbor2.dumps(found))
    both = {**as_map(stated()), NITROTPM_PCRS: {0: bytes(48)}}
    with pytest.raises(TrustError, match="the document has both pcrs and nitrotpm_pcrs"):
        decode_untrusted(cbor2.dumps(both))
    with pytest.raises(TrustError, match="the PCRs' name is 'x'; it must be pcrs or nitrotpm_pcrs"):
        encode(stated(pcrs_name="x"))


@pytest.mark.parametrize("payload", [b"\x80", b"\x00", b"\xf6", b"\x60"])
def test_payloads_that_are_no_map(payload: bytes) -> None:
    with pytest.raises(TrustError, match="the document is no map of fields"):
        decode_untrusted(payload)


@pytest.mark.parametrize("payload", [b"", b"\xa1", b"\xd9\xd9\xf7\xa0", b"\xa0\x00", b"{}"])
def test_payloads_that_are_no_cbor(payload: bytes) -> None:
    with pytest.raises(TrustError, match="the document is no strict CBOR"):
        decode_untrusted(payload)


@given(
    st.dictionaries(
        st.sampled_from([*ORDER, NITROTPM_PCRS, "x"]),
        st.recursive(
            st.none() | st.integers() | st.binary(max_size=64) | st.text(max_size=8) | st.booleans(),
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.integers(0, 40), inner, max_size=3),
            max_leaves=8,
        ),
    )
)
@settings(deadline=None)
def test_any_map_is_decoded_or_refused(changes: dict[str, object]) -> None:
    try:
        found = decode_untrusted(cbor2.dumps({**as_map(stated()), **changes}))
    except TrustError:
        return
    assert decode_untrusted(encode(found)) == found
