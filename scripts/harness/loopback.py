"""Two ends on one host, for benches that need no link of their own, and so neither namespaces nor root."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Loopback:
    """A `client_server.Pair` without namespaces."""

    receiver: str = "127.0.0.1"
    """The receiving end's address."""

    def command(self, _node: str, argv: Sequence[str]) -> list[str]:
        """Return `argv`: both ends run here."""
        return [*argv]
