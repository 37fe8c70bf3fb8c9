"""The public errors of this package; see `srd.proto.errors` for the hierarchy."""

from srd.proto.errors import PacketError, PeerError, RequestError, SrdError, UsageError

__all__ = ["PacketError", "PeerError", "RequestError", "SrdError", "UsageError"]
