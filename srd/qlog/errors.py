"""What can be wrong with a trace file."""

from __future__ import annotations

from srd.errors import SrdError


class TraceError(SrdError):
    """A trace cannot be written, or what was read is none; the message names the file, the place and the remedy."""
