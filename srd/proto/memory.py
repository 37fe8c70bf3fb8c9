"""What the core asks of registered memory: whether a key, a right and a range allow it, and where the bytes lie.

The core never touches payload. `devmem.Registry` is the implementation on real memory; a test's may be a dictionary.
Answers are asked for anew with every packet, so that a key that was withdrawn stops working at once.
"""

from __future__ import annotations

from typing import Protocol


class Memory(Protocol):
    """Registrations by key. Each method returns where the range begins, in the owner's terms, or None: not allowed.

    What is returned by `remote_readable` is a burst's `payload_offset`, by the others a `TargetCopy`'s `place`.
    """

    def local_writable(self, key: int, *, offset: int, length: int) -> int | None:
        """Return where a read of this end's own may land."""

    def remote_readable(self, key: int, *, offset: int, length: int) -> int | None:
        """Return where the other end may read."""

    def remote_writable(self, key: int, *, offset: int, length: int) -> int | None:
        """Return where the other end may write."""
