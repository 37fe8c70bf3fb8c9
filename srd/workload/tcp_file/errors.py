"""The error of a file over TCP."""

from __future__ import annotations

from srd.errors import SrdError


class TransferError(SrdError):
    """A transfer did not transfer the whole file; one line for the user."""
