"""Open SRD: a reliable datagram transport that sprays one flow over many paths and delivers out of order.

`connect` opens a peer. `Endpoint` opens and accepts many and registers memory. `Peer` sends and receives messages, and
writes and reads the other end's registered memory. `Message` is a received message in the memory where it landed.
`Engine` is the transport below `Endpoint`, without futures.
"""

from srd.batch import MessageBatch
from srd.client import connect
from srd.completion import CompletionQueue, WorkCompletion
from srd.config import EndpointConfig
from srd.endpoint import Endpoint
from srd.engine import Engine
from srd.errors import PeerError, RequestError, SrdError, UsageError
from srd.message import Message, WriteNotification
from srd.peer import PathStats, Peer
from srd.proto.config import ProtocolConfig
from srd.proto.controller import Controller
from srd.proto.wire.status import Status
from srd.proto.work_request import BatchRequest, WorkRequest
from srd.qlog.writer import TraceWriter
from srd.secure.config import Cert, Identity, Keys, Plain, Psk
from srd.stats import EndpointStats, PeerStats

__all__ = [
    "BatchRequest",
    "Cert",
    "CompletionQueue",
    "Controller",
    "Endpoint",
    "EndpointConfig",
    "EndpointStats",
    "Engine",
    "Identity",
    "Keys",
    "Message",
    "MessageBatch",
    "PathStats",
    "Peer",
    "PeerError",
    "PeerStats",
    "Plain",
    "ProtocolConfig",
    "Psk",
    "RequestError",
    "SrdError",
    "Status",
    "TraceWriter",
    "UsageError",
    "WorkCompletion",
    "WorkRequest",
    "WriteNotification",
    "connect",
]
