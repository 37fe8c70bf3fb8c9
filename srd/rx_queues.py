"""Receive queues of an endpoint: the memories that payloads land in, which peer's go where, and how pieces come back.

1. Queue 0 is the default one, in host memory of the endpoint's own ("linear" bytes, as Device Memory TCP calls them).
   `bind_rx` adds one over a region of the application's; nothing goes there before a rule says so (`RxQueue.steer`).
   Rules are the kernel's to apply (`srd.io.steering`). What arrives before its rule is set lands in queue 0: it is
   delivered like all else, and counted.
2. What the application holds it returns in one of three ways: `Message.release`, tokens (`devmem.Tokens`), or a refill
   ring. Each piece returned gives its bytes of credit back to the peer that it came from.
3. A queue that is unbound takes nothing more; its region is let go when the last piece in it has been returned.
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
    """A receive queue bound to a region. Made by `Endpoint.bind_rx`; a context manager that unbinds."""

    def __init__(self, queues: RxQueueTable, queue: RxRing, sock: socket.socket) -> None:
        self.region = queue.region
        self.id = queue.number
        self._queues = queues
        self._ring = queue
        self.sock: socket.socket | None = sock
        self._owners: set[int | None] = set()  # peers that were ever steered here; None: whichever

    def steer(self, peer: Peer | None = None, *, host: str | None = None, port: int | None = None) -> None:
        """Have data land here from now on: of `peer`, or from an address (and port), or all that no older rule is for.

        Raises UsageError for what is no address, SrdError where the kernel refuses.
        """
        if self.sock is None:
            raise UsageError(f"queue {self.id} is unbound; bind the region again")
        rule = _rule(peer, host=host, port=port)
        self._queues.steer(rule, self.sock)
        # Payload may land in place unseen only where all of it is one peer's (`srd.io.placement_predictor`).
        self._owners.add(rule.context)
        self._ring.predictor.context = rule.context if len(self._owners) == 1 else None

    def unbind(self) -> None:
        """Take nothing more, and let the region go once everything in it has been returned."""
        if self.sock is not None:
            sock, self.sock = self.sock, None
            self._queues.unbind(self._ring, sock)

    @property
    def landed_bytes(self) -> int:
        """Payload that landed in the region and was kept."""
        return self._ring.landed_bytes

    @property
    def bytes_copied(self) -> int:
        """Of it, what had to be copied there, or from there to registered memory."""
        return self._ring.bytes_copied

    @property
    def predicted_bytes(self) -> int:
        """Payload whose place in registered memory was predicted, right or wrong."""
        return self._ring.predictor.hit_bytes + self._ring.predictor.miss_bytes

    @property
    def misprediction_fraction(self) -> float:
        """The share of it that belonged elsewhere; 0 while there was none."""
        return self._ring.predictor.miss_bytes / max(self.predicted_bytes, 1)

    @property
    def free_bytes(self) -> int:
        """Memory that payload may still land in."""
        return self._ring.pool.free_bytes

    @property
    def refused_packets(self) -> int:
        """Packets that found no memory; their sender was told to wait (RNR)."""
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
    """All of an endpoint's, and what is in the application's hands."""

    def __init__(
        self, config: EndpointConfig, region: Region, *, first: socket.socket, contexts: Container[int]
    ) -> None:
        """Take `contexts`, those of open peers, as they are at any time."""
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
        self._before = (0, 0)  # copied and refused, of queues that are gone

    def start(self, driver: Driver) -> None:
        """Take the driver that reads the sockets."""
        self._driver = driver

    def _make(self, config: EndpointConfig, region: Region, *, chunk_bytes: int, number: int) -> RxRing:
        return RxRing(
            region,
            chunk_bytes=chunk_bytes,
            datagram_bytes=config.datagram_bytes,
            contexts=self._contexts,
            # The longest message may have a piece in a chunk of every slot.
            reserve_bytes=config.protocol.max_message_bytes + (SLOTS + 1) * chunk_bytes,
            number=number,
            header_split=config.header_split,
        )

    # -- binding ------------------------------------------------------------------------------------------------

    def bind(self, region: Region, *, chunk_bytes: int) -> RxQueue:
        """Make a queue over `region`; see `Endpoint.bind_rx`."""
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
        """Add a rule; for `RxQueue`."""
        assert self._steering is not None  # noqa: S101 - a queue is bound
        try:
            self._steering.steer(rule, sock)
        except ValueError as error:
            raise UsageError(str(error)) from None
        except OSError as error:
            remedy = "; raise net.core.optmem_max, or use fewer rules" if error.errno == errno.ENOMEM else ""
            raise SrdError(f"the kernel refuses the rule: {error.strerror}{remedy}") from error

    def forget_peer(self, context: int) -> None:
        """Drop the rules of a peer that is gone."""
        if self._steering is not None:
            self._steering.forget(context)

    def unbind(self, queue: RxRing, sock: socket.socket) -> None:
        """Take a queue out of service; for `RxQueue`."""
        assert self._steering is not None  # noqa: S101 - a queue is bound
        self._bound = [bound for bound in self._bound if bound.sock is not None]
        self._steering.redirect(sock)
        if self._driver is not None:
            self._driver.remove_queue(sock)
        self._steering.remove(sock)
        queue.buffers.close()
        self._try_retire(queue)

    def _try_retire(self, queue: RxRing) -> None:
        """Let the region of an unbound queue go, if nothing in it is held."""
        if queue.buffers.closed and queue.pool.idle and queue.number in self._queues:
            self._retire(queue)

    def _retire(self, queue: RxRing) -> None:
        copied, refused = self._before
        self._before = (copied + queue.bytes_copied, refused + queue.refused_packets)
        del self._queues[queue.number]
        queue.pool.release()

    # -- pieces -------------------------------------------------------------------------------------------------

    def view(self, frag: Frag) -> memoryview:
        """Return the memory of a piece. Raises PoolError for one whose memory is gone."""
        queue = self._queues.get(frag.region_offset >> AREA_SHIFT)
        if queue is None:
            raise PoolError("the piece was returned, or its endpoint is closed")
        return queue.view(frag)

    def drop(self, frags: Sequence[Frag]) -> None:
        """Give pieces back."""
        for frag in frags:
            if queue := self._queues.get(frag.region_offset >> AREA_SHIFT):
                queue.drop(frag)
                if queue.number:
                    self._try_retire(queue)

    def gathered(self, size_bytes: int) -> None:
        """Count a copy that a message made."""
        self._gathered_bytes += size_bytes

    def refill_ring(self, entries: int) -> RefillRing:
        """Make a ring; see `Endpoint.refill_ring`."""
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

    # -- what there is to see -------------------------------------------------------------------------------------

    @property
    def bytes_copied(self) -> int:
        """Payload bytes that were copied after they landed."""
        return self._before[0] + self._gathered_bytes + sum(queue.bytes_copied for queue in self._queues.values())

    @property
    def refused_packets(self) -> int:
        """Packets that found no memory."""
        return self._before[1] + sum(queue.refused_packets for queue in self._queues.values())

    # -- life ---------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Unbind all, after the driver; nothing comes back any more, and every region is let go."""
        for bound in self._bound.copy():
            bound.unbind()
        self.tokens.forget()
        for ring in self._rings:
            ring.close()
        self._rings.clear()
        for queue in list(self._queues.values()):
            self._retire(queue)
