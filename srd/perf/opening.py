"""From connections to the streams of a test: the same at both ends, which send in opposite directions."""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass

from srd.config import EndpointConfig
from srd.endpoint import Endpoint
from srd.peer import Peer
from srd.perf.errors import PerfError
from srd.perf.meter import Meter
from srd.perf.parameters import Parameters, Protocol
from srd.perf.payload import PayloadSource
from srd.perf.results import EndFigures, Start
from srd.perf.srd_streams import SrdReceiver, SrdSender
from srd.perf.stream import Address, Budget, Fail, PerfStream, SendWork, pace, shown
from srd.perf.tcp_socket import algorithm_of, flows_of
from srd.perf.tcp_streams import Connected, TcpReceiver, TcpSender
from srd.proto.trace import Trace

Connections = Sequence[Peer | socket.socket]
PORT_TRIES = 100
"""Ports that are tried: the system chooses among those that are free for UDP, most of which are free for TCP."""


@dataclass(frozen=True, slots=True)
class StreamOpening:
    """What the streams of one end have in common."""

    parameters: Parameters
    is_client: bool
    source: PayloadSource
    local: Address
    """SRD's own address."""
    fail: Fail

    def streams(self, connections: Connections) -> list[PerfStream]:
        """Return the streams, by number."""
        budget = Budget(self.parameters.size_bytes)
        return [self._stream(number, one, budget) for number, one in enumerate(connections)]

    def start(self, streams: Sequence[PerfStream], connections: Connections, *, other: Address, cookie: str) -> Start:
        """Return what is known now; `other`: the client's address, or the server as it was named."""
        mss, sent, received = _buffers_of(connections)
        return Start(
            self.parameters,
            is_client=self.is_client,
            other=other,
            cookie=cookie,
            at=time.time(),
            ends=[(shown(own), shown(far)) for own, far in (stream.ends for stream in streams)],
            mss_bytes=mss,
            sndbuf_bytes=sent,
            rcvbuf_bytes=received,
        )

    def _stream(self, number: int, connection: Peer | socket.socket, budget: Budget) -> PerfStream:
        if self.parameters.client_sends(number) is self.is_client:
            return self._sender(number, connection, budget)
        checked = self.source if self.parameters.verify else None
        if isinstance(connection, Peer):
            return SrdReceiver(number, peer=connection, local=self.local, source=checked, fail=self.fail)
        return TcpReceiver(number, sock=connection, source=checked, fail=self.fail)

    def _sender(self, number: int, connection: Peer | socket.socket, budget: Budget) -> PerfStream:
        rate_bps, block_bytes = self.parameters.rate_bps, self.parameters.block_bytes
        work = SendWork(self.source, block_bytes, budget, pace(rate_bps, now=time.monotonic()) if rate_bps else None)
        if isinstance(connection, Peer):
            return SrdSender(number, peer=connection, local=self.local, work=work, fail=self.fail)
        return TcpSender(number, sock=connection, work=work, fail=self.fail)


def own_results(meter: Meter, connections: Connections) -> EndFigures:
    """Return the figures of this end until the last interval."""
    algorithms = (algorithm_of(one) for one in connections if isinstance(one, socket.socket))
    return EndFigures(meter.totals(), meter.load(), next(algorithms, ""))


def _buffers_of(connections: Connections) -> tuple[int, int, int]:
    """Return TCP's segment size, and its send and receive buffers now, of the first connection; zeros for SRD."""
    one = connections[0]
    if isinstance(one, Peer):
        return 0, 0, 0
    sent, received = (one.getsockopt(socket.SOL_SOCKET, option) for option in (socket.SO_SNDBUF, socket.SO_RCVBUF))
    return flows_of(one)[0].snd_mss_bytes, sent, received


def is_tcp(parameters: Connected) -> bool:
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


async def listen(host: str, *, port: int, config: EndpointConfig, trace: Trace | None = None) -> Endpoint:
    """Open a server's endpoint; a port that is left to the system (0) is free for TCP, too. Raises SrdError."""
    for _ in range(PORT_TRIES):
        endpoint = await Endpoint.listen(host, port, config=config, trace=trace)
        if port or _is_free_for_tcp(host, endpoint.address[1]):
            return endpoint
        await endpoint.close()
    raise PerfError(f"{host}: no port that is free for UDP is free for TCP; give one with --port")


def _is_free_for_tcp(host: str, port: int) -> bool:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True
