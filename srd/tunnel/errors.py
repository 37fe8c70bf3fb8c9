"""The error that a tunnel ends with."""

from __future__ import annotations

from srd.errors import SrdError


class TunnelError(SrdError):
    """The tunnel cannot be had or kept; its text is one line that names the value and the remedy."""
