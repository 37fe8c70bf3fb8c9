"""From connections to the streams of a test: the same at both ends, which send in opposite directions."""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence

from srd.peer import Peer
from srd.perf.pacing import Budget, TokenBucket
from srd.perf.parameters import Parameters, Protocol
from srd.perf.payload import Source
from srd.perf.srd_streams import SrdReceiver, SrdSender
from srd.perf.stream import Address, Fail, Stream
from srd.perf.tcp_info import flows_of
from srd.perf.tcp_socket import algorithm_of
from srd.perf.tcp_streams import TcpReceiver, TcpSender

Connections = Sequence[Peer] | Sequence[socket.socket]


def make_streams(
    connections: Connections,
    *,
    parameters: Parameters,
    is_client: bool,
    source: Source,
    local: str,
    port: int,
    fail: Fail,
) -> list[Stream]:
    """Return the streams, by number. `local`, `port`: SRD's own address."""
    budget = Budget(parameters.size_bytes)
    checked = source if parameters.verify else None
    made: list[Stream] = []
    for number, connection in enumerate(connections):
        sends = parameters.client_sends(number) is is_client
        pace = TokenBucket(parameters.rate_bps, now=time.monotonic()) if parameters.rate_bps and sends else None
        if isinstance(connection, Peer):
            here: Address = (local, port)
            made.append(
                SrdSender(
                    number,
                    peer=connection,
                    local=here,
                    source=source,
                    block_bytes=parameters.block_bytes,
                    budget=budget,
                    pace=pace,
                    fail=fail,
                )
                if sends
                else SrdReceiver(number, peer=connection, local=here, source=checked, fail=fail)
            )
        else:
            made.append(
                TcpSender(
                    number,
                    sock=connection,
                    source=source,
                    block_bytes=parameters.block_bytes,
                    budget=budget,
                    pace=pace,
                    fail=fail,
                )
                if sends
                else TcpReceiver(number, sock=connection, source=checked, fail=fail)
            )
    return made


def congestion_of(connections: Connections) -> str:
    """Return the name of TCP's congestion control; empty for SRD."""
    return next((algorithm_of(one) for one in connections if isinstance(one, socket.socket)), "")


def buffers_of(connections: Connections) -> tuple[int, int, int]:
    """Return TCP's segment size, and its send and receive buffers now, of the first connection; zeros for SRD."""
    one = connections[0]
    if isinstance(one, Peer):
        return 0, 0, 0
    sizes = (one.getsockopt(socket.SOL_SOCKET, option) for option in (socket.SO_SNDBUF, socket.SO_RCVBUF))
    sent, received = sizes
    return flows_of(one)[0].snd_mss_bytes, sent, received


def is_tcp(parameters: Parameters) -> bool:
    """Whether the data goes over kernel sockets."""
    return parameters.protocol is not Protocol.SRD


def local_host(remote: str) -> str:
    """Return the address from which this machine sends to `remote`."""
    family = socket.AF_INET6 if ":" in remote else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as sock:
        try:
            sock.connect((remote, 9))
        except OSError:
            return "::" if family == socket.AF_INET6 else "0.0.0.0"  # noqa: S104 - shown, not bound
        return str(sock.getsockname()[0])
