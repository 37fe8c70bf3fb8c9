"""The errors that the protocol raises; `srd.errors` has the whole tree."""

from __future__ import annotations


class SrdError(Exception):
    """Root of the errors of this package."""


class PacketError(SrdError):
    """What the network delivered is no valid packet. The only error that `*_untrusted` functions raise."""


class UsageError(SrdError):
    """The caller's request cannot be carried out; the message names the value and the remedy."""
