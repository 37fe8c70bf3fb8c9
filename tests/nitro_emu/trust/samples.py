"""Real attestation documents, documents of our own, and certificates with any fault, for the tests of trust."""

from __future__ import annotations

import base64
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import SECP384R1, EllipticCurve, generate_private_key
from cryptography.hazmat.primitives.hashes import SHA256, SHA384
from cryptography.x509.oid import NameOID

from nitro_emu.errors import TrustError
from nitro_emu.trust.documents import AttestationDocument, sign
from nitro_emu.trust.pki import Authority, load_certificate_untrusted, make_root
from nitro_emu.trust.verify import Expectation, verify_untrusted

DATA = Path(__file__).parents[2] / "data" / "attestation"
SELF_SIGNED = DATA / "selfsigned_attestation.b64"
AWS_ROOT_FILE = DATA / "aws-nitro-enclaves-root-g1.pem"
NOW = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)
HOUR = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Real:
    """A real document."""

    name: str
    at: datetime  # within its certificate's three hours
    module_id: str
    debug: bool

    @property
    def path(self) -> Path:
        return DATA / self.name

    @property
    def signed(self) -> bytes:
        return base64.b64decode(self.path.read_bytes(), validate=True)


REAL = (
    Real(
        "nitro_attestation.b64",
        datetime(2024, 9, 7, 15, tzinfo=UTC),
        "i-0a22e5c5f24d22174-enc0191cceb4289903f",
        debug=False,
    ),
    Real(
        "nitro_attestation_debug.b64",
        datetime(2024, 9, 7, 15, tzinfo=UTC),
        "i-0a22e5c5f24d22174-enc0191ccebaf8feaba",
        debug=True,
    ),
    Real(
        "nitro_attestation.txt",
        datetime(2024, 5, 7, 18, tzinfo=UTC),
        "i-0eec57d9c38705a57-enc018f25eda1b897b7",
        debug=False,
    ),
    Real(
        "valid-attestation-doc-base64",
        datetime(2023, 9, 18, 16, tzinfo=UTC),
        "i-0918f6c55e3b61d89-enc018aa8b8e2285d13",
        debug=True,
    ),
)


@cache
def aws_root() -> x509.Certificate:
    return load_certificate_untrusted(AWS_ROOT_FILE.read_bytes(), name="AWS's root")


@cache
def authorities() -> tuple[Authority, ...]:
    """A chain like AWS's: root, region, zone, instance, leaf."""
    root = make_root("root", now=NOW)
    region = root.make_intermediate("region", now=NOW, days=20, path_length=2)
    zone = region.make_intermediate("zone", now=NOW, days=6, path_length=1)
    instance = zone.make_intermediate("instance", now=NOW, days=1, path_length=0)
    return (root, region, zone, instance, instance.make_leaf("leaf", now=NOW))


def stated(chain: tuple[Authority, ...] | None = None, **changes: object) -> AttestationDocument:
    """A document of ours, with some fields changed."""
    chain = authorities() if chain is None else chain
    document = AttestationDocument(
        module_id="card-a",
        timestamp_ms=int(NOW.timestamp() * 1000) + 1,
        pcrs={index: bytes([index + 1]) * 48 for index in range(16)},
        certificate=chain[-1].der,
        cabundle=tuple(authority.der for authority in chain[:-1]),
        public_key=b"public key",
        user_data=b"user data",
        nonce=b"nonce",
    )
    return replace(document, **changes)  # type: ignore[arg-type] # tests give wrong types, too


def signed(chain: tuple[Authority, ...] | None = None, **changes: object) -> bytes:
    chain = authorities() if chain is None else chain
    return sign(stated(chain, **changes), key=chain[-1].private_key)


def expectation(chain: tuple[Authority, ...] | None = None, **changes: object) -> Expectation:
    chain = authorities() if chain is None else chain
    return replace(Expectation(root=chain[0].certificate, at=NOW + HOUR), **changes)  # type: ignore[arg-type]


def issue(
    issuer: Authority | None,
    name: str,
    *,
    ca: bool | None = False,  # None: without basicConstraints
    path_length: int | None = None,
    usage: str = "digital_signature",  # empty: without keyUsage
    start: datetime = NOW,
    end: datetime = NOW + 3 * HOUR,
    issuer_name: str | None = None,
    curve: EllipticCurve | None = None,
    algorithm: SHA256 | SHA384 | None = None,
    extension: x509.ExtensionType | None = None,
) -> Authority:
    """A certificate as pki.py makes none; a root's issuer is None."""
    key = generate_private_key(SECP384R1() if curve is None else curve)
    above = name if issuer is None else issuer.certificate.subject
    if issuer_name is not None or issuer is None:
        above = common_name(name if issuer_name is None else issuer_name)
    assert isinstance(above, x509.Name)
    builder = (
        x509.CertificateBuilder()
        .subject_name(common_name(name))
        .issuer_name(above)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(end)
    )
    if ca is not None:
        builder = builder.add_extension(x509.BasicConstraints(ca=ca, path_length=path_length), critical=True)
    if usage:
        builder = builder.add_extension(key_usage(usage), critical=True)
    if extension is not None:
        builder = builder.add_extension(extension, critical=True)
    signing = key if issuer is None else issuer.private_key
    return Authority(builder.sign(signing, SHA384() if algorithm is None else algorithm), key)


def common_name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def key_usage(only: str) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=only == "digital_signature",
        key_cert_sign=only == "key_cert_sign",
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        crl_sign=only == "crl_sign",
        encipher_only=False,
        decipher_only=False,
    )


def reason(document: bytes, expected: Expectation) -> str:
    """Return why a document is refused, which must be one line."""
    with pytest.raises(TrustError) as caught:
        verify_untrusted(document, expected=expected)
    assert "\n" not in str(caught.value)
    return str(caught.value)
