"""What a file transfer needs of what carries its messages: an endpoint here, or the card of `srd send --card`.

`srd.endpoint.Endpoint` and `srd.peer.Peer` are listeners and peers of this kind as they are. Another package offers a
`Transport` by an entry point (`srd.cli.transports`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Protocol, Self

from devmem.region import Region
from srd.errors import PeerError
from srd.proto.wire.status import Status


class Message(Protocol):
    """A received message. A context manager; its memory is reused when it is released."""

    @property
    def immediate(self) -> int | None:
        """The sender's 32-bit immediate, or None."""

    def views(self) -> Iterator[memoryview]:
        """Yield views of its pieces in order, without a copy."""

    def gather(self) -> bytes:
        """Return it as bytes."""

    def release(self) -> None:
        """Release its memory. Further calls have no effect."""

    def __enter__(self) -> Self:
        """Return the message."""

    def __exit__(self, *_: object) -> None:
        """Release it."""


class Peer(Protocol):
    """The other end of a transfer."""

    @property
    def address(self) -> tuple[str, int]:
        """Its IP address and port, for messages to people."""

    @property
    def ended(self) -> bool:
        """Whether it has ended. Messages that arrived before can still be received."""

    @property
    def landed_bytes(self) -> int:
        """Payload that has landed here."""

    @property
    def can_send_mapped(self) -> bool:
        """Whether a region to send may be a mapped file, which could become shorter meanwhile."""

    def post_send(
        self, region: Region, *, offset: int, length: int, immediate: int | None = None
    ) -> asyncio.Future[Status]:
        """Send a part of a region as one message. Every request ends within a bounded time. Raises PeerError: ended."""

    async def recv(self) -> Message:
        """Return the next message. Raises PeerError when the peer has ended."""

    async def wait_ended(self) -> Status:
        """Wait until the peer has ended; return the status: OK if the other end has closed it."""

    def error(self) -> PeerError:
        """Return the error with the status and the reason of the end."""

    async def close(self) -> None:
        """Complete what was posted, within a bounded time, then close."""


class Listener(Protocol):
    """Where peers arrive."""

    async def accept(self) -> Peer:
        """Return the next peer. Raises SrdError when no more can come."""

    async def close(self) -> None:
        """Accept no more peers, and close what was accepted."""


class TargetListener(Listener, Protocol):
    """A listener of a `Transport`."""

    @property
    def target(self) -> str:
        """What the other end gives to `Transport.connect`: one word, without whitespace."""


class Transport(Protocol):
    """Carries transfers by another way than an endpoint of this process."""

    @classmethod
    async def open(cls, device: str) -> Self:
        """Open a device. Raises SrdError."""

    @staticmethod
    def check_target(target: str) -> None:
        """Raise UsageError for what is no target."""

    async def connect(self, target: str) -> Peer:
        """Connect to a listener. Raises PeerError when it does not answer or refuses, SrdError without a device.

        May be called again after the device has failed.
        """

    async def listen(self) -> TargetListener:
        """Wait for peers. Raises SrdError."""

    async def close(self) -> None:
        """Close the device, and all peers."""
