"""X.509 certificates of static keys (RFC 5280, RFC 8410): an authority says which name has a key.

A certificate's key is the X25519 key of the handshake itself, so the handshake proves that its sender holds it, and
there is no further signature. It is issued directly by one of the authorities that an endpoint is given. There are no
chains and no revocation lists: certificates are issued for days.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID, ObjectIdentifier

from srd.proto.base.errors import PacketError, UsageError
from srd.proto.base.security import MAX_CREDENTIAL_BYTES

RESPONDER, INITIATOR = ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH
"""What a certificate is for: it may name either use, both or none."""

_LAZILY_PARSED: Final = ("extensions", "issuer", "subject", "not_valid_before_utc", "not_valid_after_utc")


def parse_untrusted(der: bytes) -> x509.Certificate:
    """Return the certificate that the other end has sent. Raises PacketError unless it is one of an X25519 key."""
    try:
        certificate = x509.load_der_x509_certificate(der)
        key = certificate.public_key()
        for name in _LAZILY_PARSED:
            getattr(certificate, name)
    except Exception as error:  # the parser raises errors of many kinds
        raise PacketError(f"a certificate of {len(der)} bytes cannot be parsed") from error
    if not isinstance(key, X25519PublicKey):
        raise PacketError("a certificate is not of an X25519 key")
    return certificate


def key_of_untrusted(der: bytes) -> bytes:
    """Return the key of a certificate. Raises PacketError."""
    key = parse_untrusted(der).public_key()
    assert isinstance(key, X25519PublicKey)  # noqa: S101 - checked by parse_untrusted
    return key.public_bytes_raw()


def names_of(certificate: x509.Certificate) -> tuple[str, ...]:
    """Return the host names and addresses that a certificate is for (its subjectAltName)."""
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return ()
    hosts = [name.lower() for name in names.get_values_for_type(x509.DNSName)]
    return (*hosts, *map(str, names.get_values_for_type(x509.IPAddress)))


@dataclass(frozen=True, slots=True)
class Authorities:
    """The authorities that an endpoint trusts."""

    certificates: tuple[x509.Certificate, ...]

    def refusal_untrusted(self, der: bytes, *, use: ObjectIdentifier, host: str | None, now: datetime) -> str | None:
        """Return why a certificate is not accepted for `use`, at `now`, and for a `host` unless that is None."""
        try:
            certificate = parse_untrusted(der)
        except PacketError as error:
            return str(error)
        issuers = [issuer for issuer in self.certificates if _has_issued(issuer, certificate)]
        if not issuers:
            return f"its certificate is issued by {certificate.issuer.rfc4514_string()!r}, which is not trusted"
        if (reason := _refusal_by_time(certificate, "its certificate", now)) is not None:
            return reason
        reasons = [_refusal_by_time(issuer, "its authority's certificate", now) for issuer in issuers]
        if None not in reasons:  # else an authority that has renewed its certificate is known by the new one, too
            return reasons[0]
        return _refusal_by_extension(certificate, use) or _refusal_by_name(certificate, host)


def _has_issued(issuer: x509.Certificate, certificate: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(issuer)
    except Exception:  # noqa: BLE001 - what the other end has sent, parsed lazily: errors of many kinds
        return False
    return True


def _refusal_by_time(certificate: x509.Certificate, name: str, now: datetime) -> str | None:
    first, last = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if first <= now <= last:
        return None
    return f"{name} is valid from {first:%F %T} to {last:%F %T} UTC, and it is {now:%F %T}"


def _refusal_by_extension(certificate: x509.Certificate, use: ObjectIdentifier) -> str | None:
    for extension in certificate.extensions:
        if isinstance(extension.value, x509.ExtendedKeyUsage):
            if use not in extension.value and ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE not in extension.value:
                return f"its certificate is not for {'server' if use == RESPONDER else 'client'} authentication"
        elif extension.critical and not isinstance(extension.value, _KNOWN):
            return f"its certificate has the critical extension {extension.oid.dotted_string}, which is not known"
    return None


_KNOWN: Final = (x509.SubjectAlternativeName, x509.KeyUsage, x509.BasicConstraints)


def _refusal_by_name(certificate: x509.Certificate, host: str | None) -> str | None:
    if host is None:
        return None
    try:
        wanted = str(ipaddress.ip_address(host.partition("%")[0]))
    except ValueError:
        wanted = host.lower().rstrip(".")
    names = names_of(certificate)
    return None if wanted in names else f"its certificate is for {', '.join(names) or 'no name'}, not for {host}"


# -- files -----------------------------------------------------------------------------------------------------------


def certificate_in(text: str, path: Path) -> bytes:
    """Return the certificate in a PEM file's `text`, as DER. Raises UsageError unless it can be used with SRD."""
    try:
        der = x509.load_pem_x509_certificate(text.encode()).public_bytes(Encoding.DER)
        parse_untrusted(der)
    except (ValueError, PacketError) as error:
        raise UsageError(f"{path}: has no certificate of an X25519 key: {error}; see docs/security.md") from error
    if len(der) > MAX_CREDENTIAL_BYTES:
        raise UsageError(
            f"{path}: a certificate of {len(der)} bytes does not fit into a HELLO; at most {MAX_CREDENTIAL_BYTES} do: "
            "have it signed with Ed25519 or ECDSA, and with fewer names"
        )
    return der


def read_authorities(path: Path) -> Authorities:
    """Return the authorities in a PEM file. Raises UsageError."""
    try:
        found: Sequence[x509.Certificate] = x509.load_pem_x509_certificates(path.read_bytes())
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise UsageError(f"{path}: has no certificates in PEM; give the file of the authority's certificate") from error
    for certificate in found:
        if not _is_authority(certificate):
            raise UsageError(f"{path}: {certificate.subject.rfc4514_string()!r} is no authority (basicConstraints CA)")
    return Authorities(tuple(found))


def _is_authority(certificate: x509.Certificate) -> bool:
    try:
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except (ValueError, x509.ExtensionNotFound):
        return False


def utc_now() -> datetime:
    """Return the wall clock's time."""
    return datetime.now(UTC)
