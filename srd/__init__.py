"""Open SRD: a reliable datagram transport that sprays one flow over many paths and delivers out of order.

`Endpoint` opens and accepts peers, `Peer` sends and receives messages, `Message` is a received one, in place.
"""

from srd.config import EndpointConfig
from srd.endpoint import Endpoint
from srd.errors import PeerError, SrdError, UsageError
from srd.message import Message
from srd.peer import Peer
from srd.proto.config import ProtocolConfig
from srd.proto.status import Status

__all__ = [
    "Endpoint",
    "EndpointConfig",
    "Message",
    "Peer",
    "PeerError",
    "ProtocolConfig",
    "SrdError",
    "Status",
    "UsageError",
]
