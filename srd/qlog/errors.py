"""The error of this package."""

from __future__ import annotations

from srd.errors import SrdError


class TraceError(SrdError):
    """A trace cannot be written, or a file is not a valid trace; the message names file, record and remedy."""
