"""What carries a sweep: SRD's peers, TCP's sockets, or what another package has, as a card's queue pairs."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import Protocol

from srd.endpoint import Endpoint
from srd.peer import Peer
from srd.perf.opening import Connections
from srd.perf.stream import Fail
from srd.perf.sweep.kernel import TcpReader, TcpResponder
from srd.perf.sweep.measures import Batches, Check, Measure, Reads, RoundTrips, Sends, TcpRoundTrips, TcpSends, Writes
from srd.perf.sweep.plan import Operation, Sweep
from srd.perf.sweep.roles import Readable, Role, SweepReceiver, SweepResponder, Written


class Carrier(Protocol):
    """One end: the client measures, the server has a role. `number` is that of the size in the sweep."""

    peers: int
    """How many keys a server's role has, if it has any."""

    @property
    def dropped_packets(self) -> int:
        """Datagrams that this host dropped, of any test."""

    def measure(self, size_bytes: int, *, number: int, keys: Sequence[int], check: Check) -> Measure:
        """Return what the client does for a size; `keys` are those of the server's role, or 0."""

    def role(self, size_bytes: int, *, number: int, fail: Fail) -> Role:
        """Return what the server does for a size."""


class Joined:
    """SRD's peers, which all carry each size, or TCP's sockets, one for each."""

    def __init__(self, sweep: Sweep, endpoint: Endpoint, connections: Connections) -> None:
        self._sweep, self._endpoint = sweep, endpoint
        self._sockets = [one for one in connections if isinstance(one, socket.socket)]
        self._peers = [one for one in connections if isinstance(one, Peer)]
        self.peers = len(self._peers) or 1

    @property
    def dropped_packets(self) -> int:
        """Datagrams that this host dropped at the endpoint, of any peer."""
        return self._endpoint.dropped_packets

    def measure(self, size_bytes: int, *, number: int, keys: Sequence[int], check: Check) -> Measure:
        """Return what the client does for a size."""
        sweep, endpoint, peers = self._sweep, self._endpoint, self._peers
        if self._sockets:
            part = TcpRoundTrips if sweep.operation is Operation.LATENCY else TcpSends
            return part(sweep, self._sockets[number], size_bytes=size_bytes)
        match sweep.operation:
            case Operation.LATENCY:
                return RoundTrips(sweep, peers[0], size_bytes=size_bytes)
            case Operation.WRITE:
                return Writes(sweep, peers, size_bytes=size_bytes, keys=keys, check=check)
            case Operation.READ:
                return Reads(sweep, endpoint, peers, size_bytes=size_bytes, keys=keys)
            case _ if size_bytes <= min(peer.batch_bytes for peer in peers):
                return Batches(sweep, endpoint, peers, size_bytes=size_bytes)
            case _:
                return Sends(sweep, peers, size_bytes=size_bytes)

    def role(self, size_bytes: int, *, number: int, fail: Fail) -> Role:
        """Return what the server does for a size."""
        sweep, endpoint, peers, verify = self._sweep, self._endpoint, self._peers, self._sweep.verify
        if self._sockets:
            part = TcpResponder if sweep.operation is Operation.LATENCY else TcpReader
            return part(self._sockets[number], size_bytes=size_bytes, verify=verify, fail=fail)
        match sweep.operation:
            case Operation.LATENCY:
                return SweepResponder(peers[0], size_bytes=size_bytes, verify=verify, fail=fail)
            case Operation.RATE:
                return SweepReceiver(peers, size_bytes=size_bytes, verify=verify, fail=fail)
            case Operation.WRITE:
                depth = sweep.depth(size_bytes)
                return Written(endpoint, peers, size_bytes=size_bytes, depth=depth, verify=verify, fail=fail)
            case Operation.READ:
                return Readable(endpoint, peers, size_bytes=size_bytes, fail=fail)
