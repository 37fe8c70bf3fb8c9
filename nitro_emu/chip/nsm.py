"""The requests of a booted card, as the Nitro Secure Module (NSM) of AWS answers them, with its errors by name."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from enum import Enum
from typing import Any, Final

from nitro_emu.chip.pcrs import PCRS, PcrBank
from nitro_emu.chip.store import Contents
from nitro_emu.errors import TrustError
from nitro_emu.trust.documents import AttestationDocument, sign
from nitro_emu.trust.pki import LEAF_HOURS, Authority, fingerprint

VERSION: Final = (1, 0, 0)
DIGEST: Final = "SHA384"
RANDOM_BYTES: Final = 256
MAX_EXTEND_BYTES: Final = 512
MAX_ATTESTED_BYTES: Final = 1024
"""Of user data, nonce and public key each: what AWS's real documents have."""

LEAF_LEFT: Final = timedelta(hours=1)
"""A leaf that is valid for less is replaced: a verifier has that long to look at a document."""

Fields = Mapping[str, Any]


class Code(Enum):
    """Errors of the NSM."""

    INVALID_ARGUMENT = "InvalidArgument"
    INVALID_INDEX = "InvalidIndex"
    INVALID_RESPONSE = "InvalidResponse"
    READ_ONLY_INDEX = "ReadOnlyIndex"
    INVALID_OPERATION = "InvalidOperation"
    BUFFER_TOO_SMALL = "BufferTooSmall"
    INPUT_TOO_LARGE = "InputTooLarge"
    INTERNAL_ERROR = "InternalError"


class NsmError(TrustError):
    """A request is refused with one of the NSM's errors."""

    def __init__(self, code: Code) -> None:
        super().__init__(code.value)
        self.code = code


class Leaves:
    """The key that signs documents, and its certificate; a new one before the old one ends."""

    def __init__(self, intermediate: Authority, *, name: str, now: Callable[[], datetime]) -> None:
        self._intermediate = intermediate
        self._name = name
        self._now = now
        self._leaf: Authority | None = None

    def current(self) -> Authority:
        """Return a leaf that is valid now, and for an hour at least."""
        now = self._now()
        leaf = self._leaf
        if leaf is None or not (
            leaf.certificate.not_valid_before_utc <= now <= leaf.certificate.not_valid_after_utc - LEAF_LEFT
        ):
            leaf = self._leaf = self._intermediate.make_leaf(self._name, now=now, hours=LEAF_HOURS)
        return leaf


def module_id(contents: Contents) -> str:
    """Return how documents name the chip: the card's name, and of which root it is."""
    return f"{contents.card}-chip{fingerprint(contents.root.certificate)[:16]}"


class Nsm:
    """What the chip offers to the card of one boot."""

    def __init__(self, bank: PcrBank, *, contents: Contents, now: Callable[[], datetime]) -> None:
        self._bank = bank
        self._contents = contents
        self._now = now
        self._module_id = module_id(contents)
        self._leaves = Leaves(contents.intermediate, name=self._module_id, now=now)
        self._requests: Mapping[str, Callable[[Fields], Fields | None]] = {
            "Attestation": self._attestation,
            "DescribeNSM": self._describe_nsm,
            "DescribePCR": self._describe_pcr,
            "ExtendPCR": self._extend_pcr,
            "GetRandom": self._get_random,
            "LockPCR": self._lock_pcr,
            "LockPCRs": self._lock_pcrs,
        }

    def answer_untrusted(self, name: str, fields: Fields) -> Fields | None:
        """Return the fields of the answer; None: it has none. Raises NsmError."""
        request = self._requests.get(name)
        if request is None:
            raise NsmError(Code.INVALID_OPERATION)
        return request(fields)

    def _describe_nsm(self, fields: Fields) -> Fields:
        _only(fields)
        major, minor, patch = VERSION
        return {
            "version_major": major,
            "version_minor": minor,
            "version_patch": patch,
            "module_id": self._module_id,
            "max_pcrs": PCRS,
            "locked_pcrs": sorted(self._bank.locked()),
            "digest": DIGEST,
        }

    def _describe_pcr(self, fields: Fields) -> Fields:
        _only(fields, "index")
        index = _number(fields, "index")
        _check_index(index)
        return {"lock": self._bank.is_locked(index), "data": self._bank.value(index)}

    def _extend_pcr(self, fields: Fields) -> Fields:
        _only(fields, "index", "data")
        index, data = _number(fields, "index"), fields.get("data")
        self._check_writable(index)
        if not isinstance(data, bytes) or not data:
            raise NsmError(Code.INVALID_ARGUMENT)
        if len(data) > MAX_EXTEND_BYTES:
            raise NsmError(Code.INPUT_TOO_LARGE)
        return {"data": self._bank.extend(index, data)}

    def _lock_pcr(self, fields: Fields) -> None:
        _only(fields, "index")
        index = _number(fields, "index")
        self._check_writable(index)
        self._bank.lock(index)

    def _lock_pcrs(self, fields: Fields) -> None:
        _only(fields, "range")
        count = _number(fields, "range")
        if count > PCRS:
            raise NsmError(Code.INVALID_INDEX)
        self._bank.lock_first(count)

    def _get_random(self, fields: Fields) -> Fields:
        _only(fields)
        return {"random": os.urandom(RANDOM_BYTES)}

    def _attestation(self, fields: Fields) -> Fields:
        _only(fields, "user_data", "nonce", "public_key")
        leaf = self._leaves.current()
        document = AttestationDocument(
            module_id=self._module_id,
            timestamp_ms=int(self._now().timestamp() * 1000),
            digest=DIGEST,
            pcrs=self._bank.locked(),
            certificate=leaf.der,
            cabundle=(self._contents.root.der, self._contents.intermediate.der),
            public_key=_attested(fields, "public_key"),
            user_data=_attested(fields, "user_data"),
            nonce=_attested(fields, "nonce"),
        )
        return {"document": sign(document, key=leaf.private_key)}

    def _check_writable(self, index: int) -> None:
        _check_index(index)
        if self._bank.is_locked(index):
            raise NsmError(Code.READ_ONLY_INDEX)


def _check_index(index: int) -> None:
    if index >= PCRS:
        raise NsmError(Code.INVALID_INDEX)


def _only(fields: Fields, *known: str) -> None:
    if fields.keys() - set(known):
        raise NsmError(Code.INVALID_ARGUMENT)


def _number(fields: Fields, name: str) -> int:
    value = fields.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise NsmError(Code.INVALID_ARGUMENT)
    return value


def _attested(fields: Fields, name: str) -> bytes | None:
    """Return what the card wants to be in the document; nothing is the same as not given."""
    value = fields.get(name)
    if value is not None and not isinstance(value, bytes):
        raise NsmError(Code.INVALID_ARGUMENT)
    if value is not None and len(value) > MAX_ATTESTED_BYTES:
        raise NsmError(Code.INPUT_TOO_LARGE)
    return value or None
