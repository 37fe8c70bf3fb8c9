"""The errors of this package, for its users; see `srd.proto.errors` for the tree."""

from srd.proto.errors import PacketError, PeerError, SrdError, UsageError

__all__ = ["PacketError", "PeerError", "SrdError", "UsageError"]
