"""The error that a collective ends with."""

from __future__ import annotations

from srd.errors import SrdError


class GroupError(SrdError, RuntimeError):
    """A process group cannot be formed, or a collective has failed; it names the rank and its host.

    A RuntimeError, too, as programs written for torch's own groups expect.
    """
