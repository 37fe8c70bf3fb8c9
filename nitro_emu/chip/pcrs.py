"""The chip's registers (PCRs), and the log of what a boot added to them, from which they can be computed again."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from nitro_emu.errors import TrustError
from nitro_emu.trust.measure import DIGEST_BYTES, ZERO, extend

PCRS: Final = 32
BOOT_PCRS: Final = 16
"""Registers 0 to 15 are the boot's, and locked by it; the others are the card's."""

MAX_EVENTS: Final = 64
MAX_DESCRIPTION: Final = 200
"""Characters."""


@dataclass(frozen=True, slots=True)
class Event:
    """One measurement of a boot."""

    index: int
    """Of the register that it was added to."""

    digest: bytes
    """48 bytes."""

    description: str

    def as_dict(self) -> dict[str, Any]:
        """Return the event as files have it; the digest in hexadecimal."""
        return {"index": self.index, "digest": self.digest.hex(), "description": self.description}


class PcrBank:
    """The registers of one boot."""

    def __init__(self) -> None:
        self._values = [ZERO] * PCRS
        self._is_locked = [False] * PCRS

    def value(self, index: int) -> bytes:
        """Return a register. Raises IndexError."""
        return self._values[_checked(index)]

    def is_locked(self, index: int) -> bool:
        """Whether a register cannot be changed until the next boot. Raises IndexError."""
        return self._is_locked[_checked(index)]

    def extend(self, index: int, data: bytes) -> bytes:
        """Add to a register, and return it. Raises IndexError, and TrustError for one that is locked."""
        if self.is_locked(index):
            raise TrustError(f"PCR{index} is locked until the next boot")
        self._values[index] = extend(self._values[index], data)
        return self._values[index]

    def lock(self, index: int) -> None:
        """Keep a register as it is; it then is in documents. Raises IndexError, and TrustError if it is locked."""
        if self.is_locked(index):
            raise TrustError(f"PCR{index} is locked already")
        self._is_locked[index] = True

    def lock_first(self, count: int) -> None:
        """Lock registers 0 to count - 1, also those that are locked. Raises IndexError."""
        if not 0 <= count <= PCRS:
            raise IndexError(count)
        self._is_locked[:count] = [True] * count

    def locked(self) -> dict[int, bytes]:
        """Return the locked registers, which documents have."""
        return {index: value for index, value in enumerate(self._values) if self._is_locked[index]}

    def boot(self) -> dict[int, bytes]:
        """Return the boot's registers, locked or not."""
        return dict(enumerate(self._values[:BOOT_PCRS]))


def _checked(index: int) -> int:
    if not 0 <= index < PCRS:
        raise IndexError(index)
    return index


def replay(events: Iterable[Event]) -> dict[int, bytes]:
    """Return the boot's registers as the events make them: what the registers must be, or one of both was changed."""
    values = [ZERO] * BOOT_PCRS
    for event in events:
        values[event.index] = extend(values[event.index], event.digest)
    return dict(enumerate(values))


def event_untrusted(fields: object) -> Event:
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
    return Event(index, digest, description)
