"""The errors that a tunnel ends with."""

from __future__ import annotations

from srd.errors import SrdError


class TunnelError(SrdError):
    """The tunnel cannot be had or kept; its text is one line that names the value and the remedy."""


class InterfaceGoneError(TunnelError):
    """The tunnel's interface was deleted while it was in use."""
