"""A receive queue that an application has bound to a region of its own."""

from __future__ import annotations

import ipaddress
from typing import Self

from srd.errors import UsageError
from srd.io.steering import Rule
from srd.peer import Peer
from srd.rx_queues import BoundRing, RxQueueTable


class RxQueue:
    """A receive queue bound to a region, made by `Endpoint.bind_rx`; a context manager that unbinds it."""

    def __init__(self, queues: RxQueueTable, bound: BoundRing) -> None:
        self.region = bound.ring.region
        self.id = bound.ring.number
        self._queues = queues
        self._bound = bound
        self._ring = bound.ring

    def steer(self, peer: Peer | None = None, *, host: str | None = None, port: int | None = None) -> None:
        """Steer data to this queue: of `peer`, or from an address (and port), or all data that no older rule matches.

        Raises UsageError for an invalid address or port, SrdError if the kernel refuses the rule.
        """
        self._queues.steer(self._bound, _rule(peer, host=host, port=port))

    def unbind(self) -> None:
        """Receive nothing more; release the region once every frag in it has been returned."""
        self._queues.unbind(self._bound)

    @property
    def landed_bytes(self) -> int:
        """Payload bytes that landed in the region and were kept."""
        return self._ring.landed_bytes

    @property
    def bytes_copied(self) -> int:
        """Payload bytes that had to be copied to the region, or from it to registered memory."""
        return self._ring.bytes_copied

    @property
    def free_bytes(self) -> int:
        """Memory in bytes that payload can still land in."""
        return self._ring.pool.free_bytes

    @property
    def refused_packets(self) -> int:
        """Packets dropped because no memory was free; their sender got an RNR and retries."""
        return self._ring.refused_packets

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.unbind()


def _rule(peer: Peer | None, *, host: str | None, port: int | None) -> Rule:
    if host is not None:
        try:
            ipaddress.ip_address(host.partition("%")[0])
        except ValueError:
            raise UsageError(f"host: {host!r} is no address; a rule needs one, not a name") from None
    if port is not None and (host is None or not 0 < port < 1 << 16):
        raise UsageError(f"port: {port} is not between 1 and 65535, or without a host; give both")
    if peer is not None and peer.ended:
        raise peer.error()
    return Rule(context=None if peer is None else peer.context, host=host, port=port)
