"""What an attestation document proves: that a root which is trusted vouches for these measurements, at that time.

    document = verify_untrusted(signed, expected=Expectation(root=root, pcrs={0: image}, nonce=nonce))

The first thing that does not hold is the reason of the TrustError. AWS's own documents verify with AWS's root, at a
time when their leaf was valid; it lives three hours.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from cryptography import x509

from nitro_emu.errors import TrustError
from nitro_emu.trust.chain import check_chain, load_chain_untrusted, time_text
from nitro_emu.trust.cose import check_signature, parse_untrusted
from nitro_emu.trust.documents import MAX_DOCUMENT_BYTES, PCRS, AttestationDocument, decode_untrusted
from nitro_emu.trust.pki import common_name, fingerprint

AWS_ROOT_SHA256: Final = "641a0321a3e244efe456463195d606317ed7cdcc3c1756e09893f3c68f79bb5b"
"""Fingerprint of the root of AWS Nitro Enclaves, CN=aws.nitro-enclaves, "G1", valid until 2049."""

DEBUG_PCRS: Final = (0, 1, 2)
"""Image, kernel and application: an enclave in debug mode, whose memory its host reads, has zeros in all three."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """What a document must prove."""

    root: x509.Certificate
    """The certificate that is trusted, however it has come here."""

    at: datetime | None = None
    """When the certificates must be valid, with a time zone; None: now."""

    pcrs: Mapping[int, bytes] = field(default_factory=dict)
    """The values of some PCRs; the others may have any."""

    nonce: bytes | None = None
    """None: any, or none; so with the next two."""

    public_key: bytes | None = None
    user_data: bytes | None = None
    allow_debug: bool = False
    """Whether an enclave in debug mode will do; it keeps nothing from its host."""


def verify_untrusted(document: bytes, *, expected: Expectation) -> AttestationDocument:
    """Return what a signed document states, if it holds. Raises TrustError with the first reason against it."""
    at = datetime.now(UTC) if expected.at is None else expected.at
    if at.tzinfo is None:
        raise TrustError(f"the time {at.isoformat()} has no time zone; give one, e.g. {at.isoformat()}Z")
    message = parse_untrusted(document, max_bytes=MAX_DOCUMENT_BYTES)
    stated = decode_untrusted(message.payload)
    chain = chain_untrusted(stated)
    check_signature(message, key=check_chain(chain, root=expected.root, at=at))
    _check_timestamp(stated, leaf=chain[-1])
    _check_debug(stated, expected=expected)
    _check_pcrs(stated, expected=expected)
    for name in ("nonce", "public_key", "user_data"):
        _check_field(name, getattr(stated, name), expected=getattr(expected, name))
    return stated


def chain_untrusted(document: AttestationDocument) -> tuple[x509.Certificate, ...]:
    """Return a document's certificates, from the root to the leaf. Raises TrustError for what cannot be read."""
    return load_chain_untrusted((*document.cabundle, document.certificate))


def root_untrusted(document: bytes) -> x509.Certificate:
    """Return the root that a document claims to have. Raises TrustError for what is no document."""
    return chain_untrusted(decode_untrusted(parse_untrusted(document, max_bytes=MAX_DOCUMENT_BYTES).payload))[0]


def aws_root_untrusted(document: bytes) -> x509.Certificate:
    """Return AWS's root, which every document of AWS carries, for `Expectation.root`.

    It is recognised by its fingerprint. Raises TrustError if the document has another root, or is none.
    """
    root = root_untrusted(document)
    if fingerprint(root) != AWS_ROOT_SHA256:
        found = f"the document's root is {common_name(root)!r} ({fingerprint(root)})"
        raise TrustError(f"{found}, not that of AWS Nitro Enclaves ({AWS_ROOT_SHA256})")
    return root


def _check_timestamp(document: AttestationDocument, *, leaf: x509.Certificate) -> None:
    start, end = leaf.not_valid_before_utc, leaf.not_valid_after_utc
    if not start.timestamp() * 1000 <= document.timestamp_ms <= end.timestamp() * 1000:
        valid = f"{time_text(start)} to {time_text(end)}"
        raise TrustError(f"the document's timestamp {document.timestamp_ms} ms is not within its certificate's {valid}")


def is_debug(document: AttestationDocument) -> bool:
    """Whether a document is of an enclave in debug mode; of NitroTPM, which has no such mode, none is."""
    return document.pcrs_name == PCRS and not any(any(document.pcrs.get(index, b"")) for index in DEBUG_PCRS)


def _check_debug(document: AttestationDocument, *, expected: Expectation) -> None:
    if is_debug(document) and not expected.allow_debug:
        raise TrustError("PCR0, PCR1 and PCR2 are zero, so it runs in debug mode and keeps nothing from its host")


def _check_pcrs(document: AttestationDocument, *, expected: Expectation) -> None:
    for index in sorted(expected.pcrs):
        found = document.pcrs.get(index)
        if found is None:
            raise TrustError(f"the document has no PCR{index}; {expected.pcrs[index].hex()} is expected")
        if found != expected.pcrs[index]:
            raise TrustError(f"PCR{index} is {found.hex()}; {expected.pcrs[index].hex()} is expected")


def _check_field(name: str, found: bytes | None, *, expected: bytes | None) -> None:
    if expected is None or found == expected:
        return
    if found is None:
        raise TrustError(f"the document has no {name}; {_short(expected)} is expected")
    raise TrustError(f"the {name} is {_short(found)}; {_short(expected)} is expected")


def _short(value: bytes) -> str:
    """Return bytes in hexadecimal, long ones with their length only."""
    return (value.hex() or "empty") if len(value) <= 64 else f"{value[:16].hex()}... ({len(value)} bytes)"
