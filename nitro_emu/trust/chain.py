"""The certificates of a document: from the root that is trusted down to the key that signed it.

RFC 5280's path validation, as AWS asks for it: names, signatures, the time, who may issue, how long the path may be,
and what a key may be used for. All keys are of P-384, and all signatures are ECDSA with SHA-384.
Revocation is not checked, as AWS recommends: leaves live three hours.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.x509.oid import ExtensionOID, SignatureAlgorithmOID

from nitro_emu.errors import TrustError
from nitro_emu.trust.pki import (
    UNREADABLE,
    certificate_der,
    common_name,
    fingerprint,
    load_der_untrusted,
    public_key_of,
)

_KNOWN_CRITICAL: Final = (ExtensionOID.BASIC_CONSTRAINTS, ExtensionOID.KEY_USAGE)


def load_chain_untrusted(certificates: Sequence[bytes]) -> tuple[x509.Certificate, ...]:
    """Return the certificates in DER, the root first, the leaf last. Raises TrustError for what cannot be used."""
    last = len(certificates) - 1
    return tuple(
        load_der_untrusted(der, name="the document's " + ("certificate" if number == last else f"cabundle[{number}]"))
        for number, der in enumerate(certificates)
    )


def check_chain(chain: Sequence[x509.Certificate], *, root: x509.Certificate, at: datetime) -> EllipticCurvePublicKey:
    """Return the leaf's key, if the chain leads from this root down to it and is valid at that time.

    `chain` is what `load_chain_untrusted` returned. Raises TrustError, which names the first reason.
    """
    if len(chain) < 2:
        raise TrustError("the document has a certificate, but none above it")
    if certificate_der(chain[0]) != certificate_der(root):
        found = f"the document's root is {common_name(chain[0])!r} ({fingerprint(chain[0])})"
        raise TrustError(f"{found}, not the trusted {common_name(root)!r} ({fingerprint(root)})")
    for number, certificate in enumerate(chain):
        if number:
            _check_issued(certificate, issuer=chain[number - 1])
        _check_time(certificate, at=at)
        _check_critical(certificate)
        if number < len(chain) - 1:
            _check_authority(certificate, below=len(chain) - 2 - number)
    _check_leaf(chain[-1])
    return public_key_of(chain[-1])


def _check_issued(certificate: x509.Certificate, *, issuer: x509.Certificate) -> None:
    name, above = common_name(certificate), common_name(issuer)
    if certificate.issuer != issuer.subject:
        raise TrustError(f"the certificate {name!r} names another issuer than {above!r}, which is above it")
    if certificate.signature_algorithm_oid != SignatureAlgorithmOID.ECDSA_WITH_SHA384:
        raise TrustError(f"the certificate {name!r} is not signed with ECDSA and SHA-384")
    try:
        _verify_signature(certificate, issuer)
    except InvalidSignature:
        raise TrustError(f"the certificate {name!r} has a signature that is not of {above!r}") from None
    except UNREADABLE as error:
        raise TrustError(f"the certificate {name!r} has a signature that cannot be verified") from error


@lru_cache(maxsize=256)  # of those that hold: peers of a card show the same ones again, and each takes 0.5 ms
def _verify_signature(certificate: x509.Certificate, issuer: x509.Certificate) -> None:
    certificate.verify_directly_issued_by(issuer)


def _check_time(certificate: x509.Certificate, *, at: datetime) -> None:
    start, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if not start <= at <= end:
        valid = f"{time_text(start)} to {time_text(end)}"
        off = "not yet at" if at < start else "no longer at"
        raise TrustError(f"the certificate {common_name(certificate)!r} is valid {valid}, {off} {time_text(at)}")


def time_text(at: datetime) -> str:
    """Return a time as errors and tables show it: UTC, to the second."""
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _check_critical(certificate: x509.Certificate) -> None:
    for extension in certificate.extensions:
        if extension.critical and extension.oid not in _KNOWN_CRITICAL:
            dotted = extension.oid.dotted_string
            raise TrustError(
                f"the certificate {common_name(certificate)!r} has the critical extension {dotted}, which is not known"
            )


def _check_authority(certificate: x509.Certificate, *, below: int) -> None:
    """Raise TrustError unless the certificate may issue others, with so many authorities below it."""
    name = common_name(certificate)
    constraints = _constraints(certificate)
    if constraints is None or not constraints.ca:
        raise TrustError(f"the certificate {name!r} is not an authority's, but issues another one")
    if constraints.path_length is not None and below > constraints.path_length:
        allowed = f"at most {constraints.path_length} authorities below it"
        raise TrustError(f"the certificate {name!r} allows {allowed}, but the chain has {below}")
    usage = _usage(certificate)
    if usage is None or not usage.key_cert_sign:
        raise TrustError(f"the certificate {name!r} may not sign certificates (its key usage lacks keyCertSign)")


def _check_leaf(certificate: x509.Certificate) -> None:
    name = common_name(certificate)
    constraints = _constraints(certificate)
    if constraints is not None and constraints.ca:
        raise TrustError(f"the certificate {name!r} is an authority's; a document is signed with a leaf's key")
    usage = _usage(certificate)
    if usage is None or not usage.digital_signature:
        raise TrustError(f"the certificate {name!r} may not sign documents (its key usage lacks digitalSignature)")


def _constraints(certificate: x509.Certificate) -> x509.BasicConstraints | None:
    try:
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value
    except x509.ExtensionNotFound:
        return None


def _usage(certificate: x509.Certificate) -> x509.KeyUsage | None:
    try:
        return certificate.extensions.get_extension_for_class(x509.KeyUsage).value
    except x509.ExtensionNotFound:
        return None
