"""Certificates as AWS Nitro Enclaves has them: P-384, SHA-384, a chain from a root to a leaf that lives three hours.

    root = make_root("card root", now=now)
    cards = root.make_intermediate("cards", now=now, days=20, path_length=0)
    leaf = cards.make_leaf("card-a", now=now)        # its key signs documents; it may issue nothing

The certificates of one key, from the root down, are what a document carries: see documents.py.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import (
    SECP384R1,
    EllipticCurvePrivateKey,
    EllipticCurvePublicKey,
    generate_private_key,
)
from cryptography.hazmat.primitives.hashes import SHA256, SHA384
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)
from cryptography.x509.oid import NameOID

from nitro_emu.errors import TrustError

ROOT_DAYS: Final = 30 * 365
LEAF_HOURS: Final = 3.0
MAX_NAME: Final = 64
"""Characters of a common name (RFC 5280)."""

ORGANIZATION: Final = "open-srd"

UNREADABLE: Final = (
    ValueError,
    TypeError,
    UnsupportedAlgorithm,
    x509.InvalidVersion,
    x509.DuplicateExtension,
    x509.UnsupportedGeneralNameType,
    Warning,
)
"""What `cryptography` raises, here or there, for a certificate that it cannot read.

It only warns of some that RFC 5280 forbids, such as a negative serial number or a country of 48 letters. Whoever sends
such a certificate is refused, and does not get to print on stderr.
"""

_PEM_MARK: Final = b"-----BEGIN "


@dataclass(frozen=True, slots=True)
class Authority:
    """A certificate and its private key. One of a root or an intermediate issues certificates."""

    certificate: x509.Certificate
    private_key: EllipticCurvePrivateKey

    @property
    def der(self) -> bytes:
        """The certificate as documents carry it."""
        return certificate_der(self.certificate)

    def make_intermediate(self, name: str, *, now: datetime, days: float, path_length: int) -> Authority:
        """Issue an authority that may have `path_length` more below it. Raises TrustError, as `make_leaf` does."""
        self._check_may_issue(authority=True, path_length=path_length)
        constraints = x509.BasicConstraints(ca=True, path_length=path_length)
        return _issued(name, now=now, lifetime=timedelta(days=days), constraints=constraints, issuer=self)

    def make_leaf(self, name: str, *, now: datetime, hours: float = LEAF_HOURS) -> Authority:
        """Issue the certificate of a new key that signs documents.

        Raises TrustError if this one may not issue it, for a name that X.509 has no room for, and for a time without
        a time zone.
        """
        self._check_may_issue(authority=False, path_length=None)
        constraints = x509.BasicConstraints(ca=False, path_length=None)
        return _issued(name, now=now, lifetime=timedelta(hours=hours), constraints=constraints, issuer=self)

    def _check_may_issue(self, *, authority: bool, path_length: int | None) -> None:
        constraints = self.certificate.extensions.get_extension_for_class(x509.BasicConstraints).value
        name = common_name(self.certificate)
        if not constraints.ca:
            raise TrustError(f"{name!r} is a leaf's certificate; a leaf issues none")
        room = constraints.path_length
        if authority and room is not None and (path_length is None or path_length >= room):
            raise TrustError(f"{name!r} has the path length {room}; give an authority below it a smaller one")


def make_root(name: str, *, now: datetime, days: float = ROOT_DAYS) -> Authority:
    """Return a new root, whose certificate is signed by itself. Raises TrustError, as `Authority.make_leaf` does."""
    constraints = x509.BasicConstraints(ca=True, path_length=None)
    return _issued(name, now=now, lifetime=timedelta(days=days), constraints=constraints, issuer=None)


def _issued(
    name: str, *, now: datetime, lifetime: timedelta, constraints: x509.BasicConstraints, issuer: Authority | None
) -> Authority:
    """Return a new key with its certificate; a root's issuer is None."""
    if now.tzinfo is None:
        raise TrustError(f"the time {now.isoformat()} has no time zone; give one, e.g. {now.isoformat()}Z")
    start, key = now.astimezone(UTC), generate_private_key(SECP384R1())  # the time is written to the second
    subject, own = _name(name), key.public_key()
    above, signing = (None, key) if issuer is None else (issuer.certificate, issuer.private_key)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if above is None else above.subject)
        .public_key(own)
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(start + lifetime)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(own), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(own if above is None else public_key_of(above)),
            critical=False,
        )
        .add_extension(constraints, critical=True)
        .add_extension(_key_usage(is_authority=constraints.ca), critical=constraints.ca)
    )
    return Authority(builder.sign(signing, SHA384()), key)


def _name(name: str) -> x509.Name:
    if not 1 <= len(name) <= MAX_NAME:
        raise TrustError(f"the name {name[:MAX_NAME]!r} has {len(name)} characters; a certificate's has 1 to 64")
    return x509.Name(
        [x509.NameAttribute(NameOID.ORGANIZATION_NAME, ORGANIZATION), x509.NameAttribute(NameOID.COMMON_NAME, name)]
    )


def _key_usage(*, is_authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not is_authority,
        key_cert_sign=is_authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )


# What is written into files, and read from them


def certificate_der(certificate: x509.Certificate) -> bytes:
    """Return a certificate as documents carry it."""
    return certificate.public_bytes(Encoding.DER)


def certificate_pem(certificate: x509.Certificate) -> bytes:
    """Return a certificate as files have it."""
    return certificate.public_bytes(Encoding.PEM)


def private_key_pem(key: EllipticCurvePrivateKey) -> bytes:
    """Return a private key as files have it (PKCS 8), not encrypted: the file must belong to its user alone."""
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def public_key_pem(key: EllipticCurvePublicKey) -> bytes:
    """Return a public key as files have it (SubjectPublicKeyInfo)."""
    return key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def fingerprint(certificate: x509.Certificate) -> str:
    """Return the SHA-256 of a certificate's DER in hexadecimal, by which a root is pinned."""
    return certificate.fingerprint(SHA256()).hex()


def common_name(certificate: x509.Certificate) -> str:
    """Return the common name of a certificate's subject, or the whole subject where it has none."""
    names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(names[0].value) if names else certificate.subject.rfc4514_string()


def public_key_of(certificate: x509.Certificate) -> EllipticCurvePublicKey:
    """Return a certificate's key. Raises TrustError for one that is not of P-384."""
    try:
        key = certificate.public_key()
    except (ValueError, UnsupportedAlgorithm) as error:
        raise TrustError(f"the certificate {common_name(certificate)!r} has a key that cannot be used") from error
    if not isinstance(key, EllipticCurvePublicKey) or not isinstance(key.curve, SECP384R1):
        raise TrustError(f"the certificate {common_name(certificate)!r} has a key that is not of P-384")
    return key


def load_certificate_untrusted(data: bytes, *, name: str) -> x509.Certificate:
    """Return the certificate in PEM or DER; `name` says in errors what it is. Raises TrustError, as for DER."""
    if _PEM_MARK not in data:
        return load_der_untrusted(data, name=name)
    try:
        found = x509.load_pem_x509_certificate(data)
    except UNREADABLE as error:
        raise TrustError(f"{name} is no certificate that can be read") from error
    return load_der_untrusted(certificate_der(found), name=name)


def load_der_untrusted(der: bytes, *, name: str) -> x509.Certificate:
    """Return the certificate in DER, all of whose parts have been read once, so that they can be used without a guard.

    Raises TrustError for one that cannot be read, that RFC 5280 forbids, or whose key is not of P-384.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            certificate = x509.load_der_x509_certificate(der)
            _read_all(certificate)
    except TrustError as error:
        raise TrustError(f"{name} is no certificate that can be used: {error}") from error
    except UNREADABLE as error:
        raise TrustError(f"{name} is no certificate that can be read") from error
    if not der.endswith(b"\x00" + certificate.signature):  # its bit string must have 0 unused bits
        raise TrustError(f"{name} is no certificate that can be read: its signature is not in DER")
    return certificate


def _read_all(certificate: x509.Certificate) -> None:
    """Read each part once: `cryptography` parses some of them only then, and raises what it likes."""
    common_name(certificate)
    _ = (certificate.issuer, certificate.extensions, certificate.signature_algorithm_oid)
    _ = (certificate.not_valid_before_utc, certificate.not_valid_after_utc)
    public_key_of(certificate)


def load_private_key_untrusted(pem: bytes, *, name: str) -> EllipticCurvePrivateKey:
    """Return the private key in PEM (not encrypted). Raises TrustError, also for one that is not of P-384."""
    try:
        key = load_pem_private_key(pem, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise TrustError(f"{name} has no private key in PEM that can be read without a password") from error
    if not isinstance(key, EllipticCurvePrivateKey) or not isinstance(key.curve, SECP384R1):
        raise TrustError(f"{name} has a private key that is not of P-384 (secp384r1)")
    return key


def load_public_key_untrusted(pem: bytes, *, name: str) -> EllipticCurvePublicKey:
    """Return the public key in PEM. Raises TrustError, also for one that is not of P-384."""
    try:
        key = load_pem_public_key(pem)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise TrustError(f"{name} has no public key in PEM") from error
    if not isinstance(key, EllipticCurvePublicKey) or not isinstance(key.curve, SECP384R1):
        raise TrustError(f"{name} has a public key that is not of P-384 (secp384r1)")
    return key
