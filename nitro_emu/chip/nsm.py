"""The attestation of a booted card, as the Nitro Secure Module (NSM) of AWS gives it, with its errors by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from enum import Enum
from typing import Any, Final

from nitro_emu.chip.store import Contents
from nitro_emu.errors import TrustError
from nitro_emu.trust.documents import AttestationDocument, sign
from nitro_emu.trust.pki import LEAF_HOURS, Authority, fingerprint

DIGEST: Final = "SHA384"
MAX_ATTESTED_BYTES: Final = 1024
"""Of user data, nonce and public key each: what AWS's real documents have."""

LEAF_LEFT: Final = timedelta(hours=1)
"""A leaf that is valid for less is replaced: a verifier has that long to look at a document."""

Fields = Mapping[str, Any]


class Code(Enum):
    """Errors of the NSM."""

    INVALID_ARGUMENT = "InvalidArgument"
    INVALID_OPERATION = "InvalidOperation"
    BUFFER_TOO_SMALL = "BufferTooSmall"
    INPUT_TOO_LARGE = "InputTooLarge"
    INTERNAL_ERROR = "InternalError"


class NsmError(TrustError):
    """A request is refused with one of the NSM's errors."""

    def __init__(self, code: Code) -> None:
        super().__init__(code.value)
        self.code = code


def module_id(contents: Contents) -> str:
    """Return how documents name the chip: the card's name, and of which root it is."""
    return f"{contents.card}-chip{fingerprint(contents.root.certificate)[:16]}"


class Nsm:
    """What the chip offers to the card of one boot, whose registers are `pcrs`."""

    def __init__(self, pcrs: Mapping[int, bytes], *, contents: Contents, now: Callable[[], datetime]) -> None:
        self._pcrs = pcrs
        self._contents = contents
        self._now = now
        self._module_id = module_id(contents)
        self._leaf: Authority | None = None

    def attest_untrusted(self, fields: Fields) -> Fields:
        """Return a document, as the fields of the answer. Raises NsmError."""
        if fields.keys() - {"user_data", "nonce", "public_key"}:
            raise NsmError(Code.INVALID_ARGUMENT)
        leaf = self._current_leaf()
        document = AttestationDocument(
            module_id=self._module_id,
            timestamp_ms=int(self._now().timestamp() * 1000),
            digest=DIGEST,
            pcrs=self._pcrs,
            certificate=leaf.der,
            cabundle=(self._contents.root.der, self._contents.intermediate.der),
            public_key=_attested(fields, "public_key"),
            user_data=_attested(fields, "user_data"),
            nonce=_attested(fields, "nonce"),
        )
        return {"document": sign(document, key=leaf.private_key)}

    def _current_leaf(self) -> Authority:
        """Return the key that signs documents, with a certificate that is valid now, and for an hour at least."""
        now, leaf = self._now(), self._leaf
        if leaf is None or not (
            leaf.certificate.not_valid_before_utc <= now <= leaf.certificate.not_valid_after_utc - LEAF_LEFT
        ):
            leaf = self._leaf = self._contents.intermediate.make_leaf(self._module_id, now=now, hours=LEAF_HOURS)
        return leaf


def _attested(fields: Fields, name: str) -> bytes | None:
    """Return what the card wants to be in the document; nothing is the same as not given."""
    value = fields.get(name)
    if value is not None and not isinstance(value, bytes):
        raise NsmError(Code.INVALID_ARGUMENT)
    if value is not None and len(value) > MAX_ATTESTED_BYTES:
        raise NsmError(Code.INPUT_TOO_LARGE)
    return value or None
