"""The attestation document: what a card, or an enclave of AWS, states about itself, in AWS Nitro's form.

    document = AttestationDocument(module_id="card-a", timestamp_ms=..., pcrs={0: ...}, certificate=..., cabundle=(...))
    signed = sign(document, key=leaf.private_key)        # a COSE_Sign1 message; verify.py verifies it

The form is AWS's (aws-nitro-enclaves-nsm-api, docs/attestation_process.md), with what real documents have and that text
does not: optional fields are there with null, and `user_data` and `nonce` take 1024 bytes. NitroTPM's documents have
their PCRs under another name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

from nitro_emu.errors import TrustError
from nitro_emu.trust.cbor import dumps, loads_untrusted
from nitro_emu.trust.cose import sign1

DIGEST: Final = "SHA384"
"""The only digest that documents name."""

PCRS: Final = "pcrs"
NITROTPM_PCRS: Final = "nitrotpm_pcrs"
"""Where a document of NitroTPM has its PCRs."""

MAX_PAYLOAD_BYTES: Final = 16384
MAX_DOCUMENT_BYTES: Final = MAX_PAYLOAD_BYTES + 256
"""Of the COSE message: its payload, the headers and the signature."""

MAX_PCRS: Final = 32
PCR_BYTES: Final = (32, 48, 64)
MAX_FIELD_BYTES: Final = 1024
"""Of a certificate, and of `public_key`, `user_data` and `nonce`."""

MAX_TIMESTAMP_MS: Final = (1 << 64) - 1

_OPTIONAL: Final = ("public_key", "user_data", "nonce")


@dataclass(frozen=True, slots=True, kw_only=True)
class AttestationDocument:
    """The fields of a document. `encode` and `decode_untrusted` keep AWS's limits; this class does not."""

    module_id: str
    """Who states it; not empty."""

    timestamp_ms: int
    """When it was made: milliseconds since 1970, UTC."""

    digest: str = DIGEST
    pcrs: Mapping[int, bytes]
    """Measurements of 32, 48 or 64 bytes, by index 0 to 31; at least one."""

    certificate: bytes
    """Of the key that signs the document; DER."""

    cabundle: tuple[bytes, ...]
    """The certificates above it, the root first; DER."""

    public_key: bytes | None = None
    """Of whoever asked to have it stated: to it, for example, secrets can be encrypted."""

    user_data: bytes | None = None
    nonce: bytes | None = None
    pcrs_name: str = PCRS
    """`PCRS`, or `NITROTPM_PCRS`."""


def encode(document: AttestationDocument) -> bytes:
    """Return the payload, with AWS's order of keys and null for what is absent. Raises TrustError beyond a limit."""
    _check(document)
    payload = dumps(
        {
            "module_id": document.module_id,
            "digest": document.digest,
            "timestamp": document.timestamp_ms,
            document.pcrs_name: {index: document.pcrs[index] for index in sorted(document.pcrs)},
            "certificate": document.certificate,
            "cabundle": list(document.cabundle),
            "public_key": document.public_key,
            "user_data": document.user_data,
            "nonce": document.nonce,
        }
    )
    if len(payload) > MAX_PAYLOAD_BYTES:
        raise TrustError(f"the document has {len(payload)} bytes; at most {MAX_PAYLOAD_BYTES} fit")
    return payload


def sign(document: AttestationDocument, *, key: EllipticCurvePrivateKey) -> bytes:
    """Return the whole document as a COSE_Sign1 message; `key` is that of its certificate.

    Raises TrustError beyond a limit, and for a key that is not of P-384.
    """
    return sign1(encode(document), key=key)


def decode_untrusted(payload: bytes) -> AttestationDocument:
    """Return the document in a payload. Raises TrustError, which names the field and its limit."""
    fields = loads_untrusted(payload, name="the document", max_bytes=MAX_PAYLOAD_BYTES)
    if not isinstance(fields, dict):
        raise TrustError("the document is no map of fields")
    pcrs_name = _pcrs_name(fields)
    _check_names(fields, pcrs_name=pcrs_name)
    document = AttestationDocument(
        module_id=fields["module_id"],
        digest=fields["digest"],
        timestamp_ms=fields["timestamp"],
        pcrs=fields[pcrs_name],
        certificate=fields["certificate"],
        cabundle=_bundle(fields["cabundle"]),
        public_key=fields.get("public_key"),
        user_data=fields.get("user_data"),
        nonce=fields.get("nonce"),
        pcrs_name=pcrs_name,
    )
    _check(document)
    return document


def _pcrs_name(fields: Mapping[object, object]) -> str:
    if PCRS in fields and NITROTPM_PCRS in fields:
        raise TrustError(f"the document has both {PCRS} and {NITROTPM_PCRS}")
    return NITROTPM_PCRS if NITROTPM_PCRS in fields else PCRS


def _check_names(fields: Mapping[object, object], *, pcrs_name: str) -> None:
    required = ("module_id", "digest", "timestamp", pcrs_name, "certificate", "cabundle")
    for name in required:
        if fields.get(name) is None:
            raise TrustError(f"the document's field {name} is missing")
    for found in fields:
        if found not in required + _OPTIONAL:
            raise TrustError(f"the document has a field {_short(found)}, which is not known")


def _bundle(value: object) -> tuple[bytes, ...]:
    if not isinstance(value, list):
        raise TrustError("the document's cabundle is no list of certificates")
    return tuple(value)


def _check(document: AttestationDocument) -> None:
    """Raise TrustError unless all fields have the types and sizes that they must; their annotations prove nothing."""
    module_id: object = document.module_id
    if not isinstance(module_id, str) or not module_id:
        raise TrustError(f"the document's module_id is {_short(module_id)}; it must be a string that is not empty")
    if document.digest != DIGEST:
        raise TrustError(f"the document's digest is {_short(document.digest)}; it must be {DIGEST!r}")
    timestamp: object = document.timestamp_ms
    if not _is_index(timestamp, start=1, stop=MAX_TIMESTAMP_MS + 1):
        raise TrustError(f"the document's timestamp is {_short(timestamp)}; it must be a number of ms, 1 to 2^64 - 1")
    if document.pcrs_name not in {PCRS, NITROTPM_PCRS}:
        raise TrustError(f"the PCRs' name is {_short(document.pcrs_name)}; it must be {PCRS} or {NITROTPM_PCRS}")
    _check_pcrs(document.pcrs, name=document.pcrs_name)
    _check_bytes(document.certificate, name="certificate", least=1)
    if not document.cabundle:
        raise TrustError("the document's cabundle is empty; it must have the root at least")
    for number, certificate in enumerate(document.cabundle):
        _check_bytes(certificate, name=f"cabundle[{number}]", least=1)
    _check_bytes(document.public_key, name="public_key", least=1, optional=True)
    _check_bytes(document.user_data, name="user_data", least=0, optional=True)
    _check_bytes(document.nonce, name="nonce", least=0, optional=True)


def _check_pcrs(pcrs: object, *, name: str) -> None:
    if not isinstance(pcrs, Mapping) or not 1 <= len(pcrs) <= MAX_PCRS:
        raise TrustError(f"the document's {name} is no map of 1 to {MAX_PCRS} measurements")
    for index, value in pcrs.items():
        if not _is_index(index, start=0, stop=MAX_PCRS):
            raise TrustError(f"the document's {name} has the index {_short(index)}; it must be 0 to {MAX_PCRS - 1}")
        if not isinstance(value, bytes) or len(value) not in PCR_BYTES:
            raise TrustError(f"the document's PCR{index} is {_short(value)}; it must have 32, 48 or 64 bytes")


def _check_bytes(value: object, *, name: str, least: int, optional: bool = False) -> None:
    if optional and value is None:
        return
    if not isinstance(value, bytes) or not least <= len(value) <= MAX_FIELD_BYTES:
        limits = f"it must have {least} to {MAX_FIELD_BYTES} bytes"
        raise TrustError(f"the document's {name} is {_short(value)}; {limits}")


def _is_index(value: object, *, start: int, stop: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and start <= value < stop


def _short(value: object) -> str:
    """Return how an error shows a value of any type and size."""
    if isinstance(value, bytes):
        return f"a byte string of {len(value)}"
    if isinstance(value, dict | list):
        return f"a {'map' if isinstance(value, dict) else 'list'} of {len(value)}"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}..."
