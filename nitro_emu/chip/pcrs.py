"""The chip's registers (PCRs): what the log of a boot adds up to."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from nitro_emu.errors import TrustError
from nitro_emu.trust.measure import DIGEST_BYTES, ZERO, extend

BOOT_PCRS: Final = 16
"""Registers of a boot; those above, which a program could add to, are not emulated."""

MAX_EVENTS: Final = 64
MAX_DESCRIPTION: Final = 200
"""Characters."""


@dataclass(frozen=True, slots=True)
class PcrEvent:
    """One measurement of a boot."""

    index: int
    """Of the register that it was added to."""

    digest: bytes
    """48 bytes."""

    description: str

    def as_dict(self) -> dict[str, Any]:
        """Return the event as files have it; the digest in hexadecimal."""
        return {"index": self.index, "digest": self.digest.hex(), "description": self.description}


def replay(events: Iterable[PcrEvent]) -> dict[int, bytes]:
    """Return the boot's registers, as the events make them."""
    values = [ZERO] * BOOT_PCRS
    for event in events:
        values[event.index] = extend(values[event.index], event.digest)
    return dict(enumerate(values))


def event_untrusted(fields: object) -> PcrEvent:
    """Return the event of a map, whose digest is in bytes or in hexadecimal. Raises TrustError."""
    if not isinstance(fields, dict):
        raise TrustError(f"{fields!r:.100} is no event of a boot; boot the card again")
    index, digest, description = (fields.get(name) for name in ("index", "digest", "description"))
    if not isinstance(index, int) or isinstance(index, bool) or not 0 <= index < BOOT_PCRS:
        raise TrustError(f"index: {index!r:.100} is no register of a boot; boot the card again")
    if isinstance(digest, str):
        try:
            digest = bytes.fromhex(digest)
        except ValueError:
            digest = b""
    if not isinstance(digest, bytes) or len(digest) != DIGEST_BYTES:
        raise TrustError(f"digest: {digest!r:.100} is no SHA-384; boot the card again")
    if not isinstance(description, str) or len(description) > MAX_DESCRIPTION:
        raise TrustError(f"description: {description!r:.100} is none; boot the card again")
    return PcrEvent(index, digest, description)
