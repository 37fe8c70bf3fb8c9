"""The core's interfaces to its owner: registered memory, and who takes a message.

`Memory`: whether a peer, a key and a range are allowed, and where the bytes lie. The core never touches payload.
`devmem.Registry` is the implementation on real memory; a test may use a dictionary. The check is repeated for every
packet, so that a deregistered key stops working at once.

`Destinations`: who, behind this endpoint, takes a message. An endpoint of an application has none: it takes every
message for which it has granted credit. A network card has queue pairs, each with receive buffers of its own.
"""

from __future__ import annotations

from typing import Protocol

from srd.proto.wire.status import Status


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


class Destinations(Protocol):
    """Queue pairs by key. The key of a send is its sender's, as `WorkRequest.key` gives it."""

    def admit(self, key: int, *, peer: int, length: int, count: int) -> Status | None:
        """Take `count` sends of `length` bytes each, or none of them; return why not, one of REFUSALS. None: taken.

        Called before any of them is acknowledged. A send that was taken is reported as received or as aborted, or its
        peer ends.
        """

    def admit_write(self, key: int, *, peer: int) -> Status | None:
        """Take the notification of a write with immediate; return why not, None: taken. Reported as a send is."""

    def refusal(self, key: int, *, peer: int) -> Status:
        """Return why a write or a read whose range `Memory` does not allow is refused."""

    def flow(self, key: int) -> int:
        """Return the flow of the answer to a read; see `WorkRequest.flow`."""
