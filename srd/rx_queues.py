"""Receive queues of an endpoint: the regions that payloads land in, the steering rules, and the return of fragments.

1. Queue 0 is the default queue, in host memory owned by the endpoint ("linear" bytes in the terms of Device Memory
   TCP). `bind_rx` adds a queue over a region of the application. It receives nothing until a rule steers packets to it
   (`RxQueue.steer`); the kernel applies the rules (`srd.io.steering`). Data that arrives before its rule is set lands
   in queue 0; it is delivered like any other, and counted.
2. The application returns fragments in one of three ways: `Message.release`, tokens (`devmem.Tokens`), or a refill
   ring. Each returned fragment gives its bytes of credit back to the peer that sent it.
3. A queue that is unbound receives nothing more; its region is released when the last fragment in it is returned.
"""

from __future__ import annotations

import errno
import ipaddress
import socket
import warnings
from collections.abc import Container, Sequence
from typing import TYPE_CHECKING, Self

from devmem.errors import PoolError
from devmem.refill import HEADER_BYTES, RefillRing
from devmem.region import Region
from devmem.tokens import Tokens
from devmem.uapi import AREA_SHIFT, MAX_AREA, ZCRX_RQE
from srd.config import EndpointConfig
from srd.errors import SrdError, UsageError
from srd.io.driver import Driver
from srd.io.rx import SLOTS, RxRing
from srd.io.rx_buffers import SUPER_BYTES, scratch_bytes
from srd.io.steering import Rule, Steering
from srd.proto.events import Frag

if TYPE_CHECKING:
    from srd.peer import Peer


class RxQueue:
    """A receive queue bound to a region, made by `Endpoint.bind_rx`; a context manager that unbinds it."""

    def __init__(self, queues: RxQueueTable, queue: RxRing, sock: socket.socket) -> None:
        self.region = queue.region
        self.id = queue.number
        self._queues = queues
        self._ring = queue
        self.sock: socket.socket | None = sock
        self._owners: set[int | None] = set()  # contexts of all peers ever steered here; None: any peer

    def steer(self, peer: Peer | None = None, *, host: str | None = None, port: int | None = None) -> None:
        """Steer data to this queue: of `peer`, or from an address (and port), or all data that no older rule matches.

        Raises UsageError for an invalid address or port, SrdError if the kernel refuses the rule.
        """
        if self.sock is None:
            raise UsageError(f"queue {self.id} is unbound; bind the region again")
        rule = _rule(peer, host=host, port=port)
        self._queues.steer(rule, self.sock)
        # Placement may be predicted only where all payload is of one peer (`srd.io.placement_predictor`).
        self._owners.add(rule.context)
        self._ring.predictor.context = rule.context if len(self._owners) == 1 else None

    def unbind(self) -> None:
        """Receive nothing more; release the region once every fragment in it has been returned."""
        if self.sock is not None:
            sock, self.sock = self.sock, None
            self._queues.unbind(self._ring, sock)

    @property
    def landed_bytes(self) -> int:
        """Payload bytes that landed in the region and were kept."""
        return self._ring.landed_bytes

    @property
    def bytes_copied(self) -> int:
        """Payload bytes that had to be copied to the region, or from it to registered memory."""
        return self._ring.bytes_copied

    @property
    def predicted_bytes(self) -> int:
        """Payload bytes whose target in registered memory was predicted, hits and misses."""
        return self._ring.predictor.hit_bytes + self._ring.predictor.miss_bytes

    @property
    def misprediction_fraction(self) -> float:
        """The fraction of `predicted_bytes` that missed; 0 while nothing was predicted."""
        return self._ring.predictor.miss_bytes / max(self.predicted_bytes, 1)

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


class RxQueueTable:
    """All receive queues of an endpoint, and the fragments that the application holds."""

    def __init__(
        self, config: EndpointConfig, region: Region, *, first: socket.socket, contexts: Container[int]
    ) -> None:
        """Create the table with queue 0; `contexts` is a live view of the open peers' contexts."""
        self.tokens = Tokens()
        self._contexts = contexts
        self.host = self._make(config, region, chunk_bytes=config.chunk_bytes, number=0)
        self._config = config
        self._queues = {0: self.host}
        self._bound: list[RxQueue] = []
        self._rings: list[RefillRing] = []
        self._next = 1
        self._first = first
        self._steering: Steering | None = None
        self._driver: Driver | None = None
        self._gathered_bytes = 0
        self._before = (0, 0)  # bytes copied and packets refused by retired queues

    def start(self, driver: Driver) -> None:
        """Set the driver that reads the sockets."""
        self._driver = driver

    def _make(self, config: EndpointConfig, region: Region, *, chunk_bytes: int, number: int) -> RxRing:
        return RxRing(
            region,
            chunk_bytes=chunk_bytes,
            datagram_bytes=config.datagram_bytes,
            contexts=self._contexts,
            # The longest message may have a fragment in a chunk of every slot.
            reserve_bytes=config.protocol.max_message_bytes + (SLOTS + 1) * chunk_bytes,
            number=number,
            header_split=config.header_split,
        )

    # -- binding ------------------------------------------------------------------------------------------------

    def bind(self, region: Region, *, chunk_bytes: int) -> RxQueue:
        """Create a queue over `region`; see `Endpoint.bind_rx`."""
        if self._driver is None:
            raise UsageError("the endpoint is not open yet")
        if not self._config.header_split:
            raise UsageError("header split is off: payload cannot land in a region by itself; set header_split=True")
        least_bytes = (SLOTS + 1) * chunk_bytes + scratch_bytes(SLOTS) + self._config.protocol.max_message_bytes
        if chunk_bytes < 2 * SUPER_BYTES or region.size_bytes < least_bytes:
            raise UsageError(
                f"region: {region.size_bytes} bytes are less than {least_bytes}, which chunk_bytes of {chunk_bytes} "
                f"(at least {2 * SUPER_BYTES}) and max_message_bytes need; give more, or make these smaller"
            )
        if self._next > MAX_AREA:
            raise UsageError(f"an endpoint binds {MAX_AREA} regions in its life; open another")
        queue = self._make(self._config, region, chunk_bytes=chunk_bytes, number=self._next)
        try:
            self._steering = self._steering or Steering(self._first)
            sock = self._steering.add()
        except OSError as error:
            queue.buffers.close()
            queue.pool.release()
            remedy = "" if error.errno == errno.EADDRINUSE else "; it needs Linux 4.5 or later"
            raise SrdError(f"a receive queue cannot be had: {error.strerror}{remedy}") from error
        queue.refill = self.host.refill
        self._next += 1
        self._queues[queue.number] = queue
        self._driver.add_queue(sock, queue)
        bound = RxQueue(self, queue, sock)
        self._bound.append(bound)
        return bound

    def steer(self, rule: Rule, sock: socket.socket) -> None:
        """Add a rule. For `RxQueue`."""
        assert self._steering is not None  # noqa: S101 - a queue is bound
        try:
            self._steering.steer(rule, sock)
        except ValueError as error:
            raise UsageError(str(error)) from None
        except OSError as error:
            remedy = "; raise net.core.optmem_max, or use fewer rules" if error.errno == errno.ENOMEM else ""
            raise SrdError(f"the kernel refuses the rule: {error.strerror}{remedy}") from error

    def forget_peer(self, context: int) -> None:
        """Remove the rules of a peer that has ended."""
        if self._steering is not None:
            self._steering.forget(context)

    def unbind(self, queue: RxRing, sock: socket.socket) -> None:
        """Take a queue out of service. For `RxQueue`."""
        assert self._steering is not None  # noqa: S101 - a queue is bound
        self._bound = [bound for bound in self._bound if bound.sock is not None]
        self._steering.redirect(sock)
        if self._driver is not None:
            self._driver.remove_queue(sock)
        self._steering.remove(sock)
        queue.buffers.close()
        self._try_retire(queue)

    def _try_retire(self, queue: RxRing) -> None:
        """Release the region of an unbound queue, if no fragment in it is held."""
        if queue.buffers.closed and queue.pool.idle and queue.number in self._queues:
            self._retire(queue)

    def _retire(self, queue: RxRing) -> None:
        copied, refused = self._before
        self._before = (copied + queue.bytes_copied, refused + queue.refused_packets)
        del self._queues[queue.number]
        queue.pool.release()

    # -- fragments ----------------------------------------------------------------------------------------------

    def view(self, frag: Frag) -> memoryview:
        """Return a view of a fragment. Raises PoolError if its memory has been released."""
        queue = self._queues.get(frag.region_offset >> AREA_SHIFT)
        if queue is None:
            raise PoolError("the piece was returned, or its endpoint is closed")
        return queue.view(frag)

    def drop(self, frags: Sequence[Frag]) -> None:
        """Release the memory of fragments."""
        for frag in frags:
            if queue := self._queues.get(frag.region_offset >> AREA_SHIFT):
                queue.drop(frag)
                if queue.number:
                    self._try_retire(queue)

    def gathered(self, size_bytes: int) -> None:
        """Count a copy made by `Message.gather`."""
        self._gathered_bytes += size_bytes

    def refill_ring(self, entries: int) -> RefillRing:
        """Create a ring; see `Endpoint.refill_ring`."""
        if entries < 2:
            raise UsageError(f"entries: {entries} is less than 2")
        region = Region(HEADER_BYTES + entries * ZCRX_RQE.itemsize, name="srd-refill")
        self._rings.append(RefillRing(region))
        for queue in self._queues.values():
            queue.refill = self._refill
        return self._rings[-1]

    def _refill(self) -> None:
        for ring in self._rings.copy():
            try:
                for off, length in ring.take_untrusted():
                    self.tokens.refill(off, length=length)
            except PoolError as error:
                self._rings.remove(ring)
                warnings.warn(f"{error}; it is not read any more", RuntimeWarning, stacklevel=2)

    # -- counters -------------------------------------------------------------------------------------------------

    @property
    def bytes_copied(self) -> int:
        """Payload bytes that were copied after they landed."""
        return self._before[0] + self._gathered_bytes + sum(queue.bytes_copied for queue in self._queues.values())

    @property
    def refused_packets(self) -> int:
        """Packets dropped because no memory was free."""
        return self._before[1] + sum(queue.refused_packets for queue in self._queues.values())

    # -- life ---------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Unbind all queues and release every region, after the driver; fragments cannot be returned any more."""
        for bound in self._bound.copy():
            bound.unbind()
        self.tokens.forget()
        for ring in self._rings:
            ring.close()
        self._rings.clear()
        for queue in list(self._queues.values()):
            self._retire(queue)
