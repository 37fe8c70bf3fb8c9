"""The core's interface to registered memory: whether a peer, a key and a range are allowed, and where the bytes lie.

The core never touches payload. `devmem.Registry` is the implementation on real memory; a test may use a dictionary. The
check is repeated for every packet, so that a deregistered key stops working at once.
"""

from __future__ import annotations

from typing import Protocol


class Memory(Protocol):
    """Registrations by key. Each method returns where the range begins, in the owner's terms, or None: not allowed.

    The result of `remote_readable` is a burst's `payload_offset`, that of the others a `TargetCopy`'s `target`.
    """

    def local_writable(self, key: int, *, offset: int, length: int) -> int | None:
        """Return where a READ of this end may land."""

    def remote_readable(self, key: int, *, peer: int, offset: int, length: int) -> int | None:
        """Return where the other end of a peer may read."""

    def remote_writable(self, key: int, *, peer: int, offset: int, length: int) -> int | None:
        """Return where the other end of a peer may write."""
