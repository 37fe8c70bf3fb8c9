"""The public errors of this package; see `srd.proto.errors` for the hierarchy."""

from srd.proto.errors import NoRouteError, PacketError, PeerError, RequestError, SrdError, UsageError

__all__ = ["NoRouteError", "PacketError", "PeerError", "RequestError", "SrdError", "UsageError"]
