"""How a transfer fails."""

from __future__ import annotations

from srd.errors import SrdError


class TransferError(SrdError):
    """A transfer failed; the message is one line with the reason."""


class TransferInterruptedError(TransferError):
    """An attempt failed; the same transfer may be offered again, and resumes where it stopped."""
