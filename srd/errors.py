"""The error tree of the `srd` package.

SrdError                      anything this package raises on purpose
├── PacketError               bytes from the network that are no valid packet
├── UsageError                the caller requested something impossible
├── NoRouteError              this host has no route that carries SRD to an address
├── PeerError                 the remote end has ended, refused, or never answered; carries a `Status`
└── RequestError              a message was not delivered; carries the `Status` that its request ended with
"""

from __future__ import annotations

from srd.proto.base.errors import PacketError, SrdError, UsageError
from srd.proto.wire.status import Status

__all__ = ["NoRouteError", "PacketError", "PeerError", "RequestError", "SrdError", "UsageError"]


class NoRouteError(SrdError):
    """This host has no route to an address, or none that carries SRD."""


class PeerError(SrdError):
    """The remote end failed. `status` is the reason."""

    def __init__(self, message: str, *, status: Status) -> None:
        """Keep the EFA status beside the message."""
        super().__init__(message)
        self.status = status


class RequestError(SrdError):
    """A message was not delivered. `status` is how its request ended."""

    def __init__(self, message: str, *, status: Status) -> None:
        """Keep the EFA status beside the message."""
        super().__init__(message)
        self.status = status
