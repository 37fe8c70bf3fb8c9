"""Receive queues of an endpoint: the regions that payloads land in, the steering rules, and the return of frags.

1. Queue 0 is the default queue, in host memory owned by the endpoint ("linear" bytes in the terms of Device Memory
   TCP). `bind_rx` adds a queue over a region of the application. It receives nothing until a rule steers packets to it
   (`RxQueue.steer`); the kernel applies the rules (`srd.io.steering`). Data that arrives before its rule is set lands
   in queue 0; it is delivered like any other, and counted.
2. The application returns frags by `Message.release` or by tokens (`devmem.Tokens`). Each returned frag gives its bytes
   of credit back to the peer that sent it.
3. A queue that is unbound receives nothing more; its region is released when the last frag in it is returned.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import socket
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Final, Self

from devmem.errors import PoolError
from devmem.region import Region
from devmem.tokens import Tokens
from srd.compaction import Compaction, Waiting
from srd.config import EndpointConfig
from srd.errors import SrdError, UsageError
from srd.io.driver import Driver
from srd.io.rx import RxRing
from srd.io.rx_buffers import SUPER_BYTES, scratch_bytes
from srd.io.rx_memory import SLOTS, RxMemory
from srd.io.secure_rx import SecureRxRing
from srd.io.steering import Rule, Steered, Steering
from srd.proto.base.security import PacketProtection
from srd.proto.events import OFFSET_MASK, REGION_SHIFT, Extent

MAX_QUEUES: Final = (1 << 15) - 1
"""Queues beside the first that an endpoint has in its life: a region offset has their number in its upper 16 bits."""


class RxQueue:
    """A receive queue bound to a region, made by `Endpoint.bind_rx`; a context manager that unbinds it."""

    def __init__(self, table: RxQueueTable, memory: RxMemory, sock: socket.socket) -> None:
        self.region = memory.region
        self.id = memory.number
        self._table = table
        self._memory = memory
        self._sock: socket.socket | None = sock  # None: it is unbound

    def steer(self, peer: Steered | None = None, *, host: str | None = None, port: int | None = None) -> None:
        """Steer data to this queue: of `peer`, or from an address (and port), or all data that no older rule matches.

        Raises UsageError for an invalid address or port, or when it is unbound, SrdError if the kernel refuses the
        rule.
        """
        if host is not None:
            try:
                ipaddress.ip_address(host.partition("%")[0])
            except ValueError:
                raise UsageError(f"host: {host!r} is no address; a rule needs one, not a name") from None
        if port is not None and (host is None or not 0 < port < 1 << 16):
            raise UsageError(f"port: {port} is not between 1 and 65535, or without a host; give both")
        if peer is not None and peer.ended:
            raise peer.error()
        if self._sock is None:
            raise UsageError(f"queue {self.id} is unbound; bind the region again")
        self._table.steer(Rule(context=None if peer is None else peer.context, host=host, port=port), self._sock)

    def unbind(self) -> None:
        """Receive nothing more; release the region once every frag in it has been returned."""
        if self._sock is not None:
            sock, self._sock = self._sock, None
            self._table.remove(self, self._memory, sock)

    @property
    def landed_bytes(self) -> int:
        """Payload bytes that landed in the region and were kept."""
        return self._memory.landed_bytes

    @property
    def bytes_copied(self) -> int:
        """Payload bytes that had to be copied to the region, or from it to registered memory."""
        return self._memory.bytes_copied

    @property
    def free_bytes(self) -> int:
        """Memory in bytes that payload can still land in."""
        return self._memory.pool.free_bytes

    @property
    def refused_packets(self) -> int:
        """Packets dropped because no memory was free; their sender got an RNR and retries."""
        return self._memory.refused_packets

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.unbind()


class RxQueueTable:
    """All receive queues of an endpoint, and the extents that the application holds."""

    def __init__(
        self,
        config: EndpointConfig,
        region: Region,
        *,
        first: socket.socket,
        contexts: Container[int],
        protections: Mapping[int, PacketProtection] | None,
    ) -> None:
        """Create the table with queue 0.

        `contexts` is a live view of the open peers' contexts, `protections` one of their keys; None: plain text.
        """
        self.tokens = Tokens()
        self._protections = protections
        self._contexts = contexts
        self.host = self._make(config, region, chunk_bytes=config.chunk_bytes, number=0)
        self._config = config
        self._queues = {0: self.host}
        self._bound: list[RxQueue] = []
        self._next = 1
        self._first = first
        self._steering: Steering | None = None
        self._driver: Driver | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: Callable[[], Iterable[Waiting]] | None = None
        self._api_copied_bytes = 0
        self._before = (0, 0)  # bytes copied and packets refused by retired queues

    def start(self, driver: Driver) -> None:
        """Set the driver that reads the sockets, in the running event loop."""
        self._driver = driver
        self._loop = asyncio.get_running_loop()

    def _make(self, config: EndpointConfig, region: Region, *, chunk_bytes: int, number: int) -> RxMemory:
        # The longest message may have an extent in a chunk of every slot.
        reserve_bytes = config.protocol.max_message_bytes + (SLOTS + 1) * chunk_bytes
        if self._protections is not None:
            return SecureRxRing(
                region,
                chunk_bytes=chunk_bytes,
                protections=self._protections,
                reserve_bytes=reserve_bytes,
                number=number,
            )
        return RxRing(
            region,
            chunk_bytes=chunk_bytes,
            datagram_bytes=config.datagram_bytes,
            contexts=self._contexts,
            reserve_bytes=reserve_bytes,
            number=number,
        )

    def compact(self, waiting: Callable[[], Iterable[Waiting]]) -> None:
        """Move what waits to be received together from now on, where a region is short of memory."""
        self._waiting = waiting
        for queue in self._queues.values():
            queue.on_low = self._on_low(queue)

    def _on_low(self, queue: RxMemory) -> Callable[[], None] | None:
        return None if self._waiting is None else Compaction(queue, waiting=self._waiting).on_low

    # -- binding ------------------------------------------------------------------------------------------------

    def bind(self, region: Region, *, chunk_bytes: int) -> RxQueue:
        """Create a queue over `region`; see `Endpoint.bind_rx`."""
        if self._driver is None:
            raise UsageError("the endpoint is not open yet")
        least_bytes = (SLOTS + 1) * chunk_bytes + scratch_bytes(SLOTS) + self._config.protocol.max_message_bytes
        if chunk_bytes < 2 * SUPER_BYTES or region.size_bytes < least_bytes:
            raise UsageError(
                f"region: {region.size_bytes} bytes are less than {least_bytes}, which chunk_bytes of {chunk_bytes} "
                f"(at least {2 * SUPER_BYTES}) and max_message_bytes need; give more, or make these smaller"
            )
        if self._next > MAX_QUEUES:
            raise UsageError(f"an endpoint binds {MAX_QUEUES} regions in its life; open another")
        queue = self._make(self._config, region, chunk_bytes=chunk_bytes, number=self._next)
        try:
            self._steering = self._steering or Steering(self._first)
            sock = self._steering.add()
        except OSError as error:
            queue.buffers.close()
            queue.pool.release()
            remedy = "" if error.errno == errno.EADDRINUSE else "; it needs Linux 4.5 or later"
            raise SrdError(f"a receive queue cannot be had: {error.strerror}{remedy}") from error
        queue.on_low = self._on_low(queue)
        self._next += 1
        self._queues[queue.number] = queue
        self._driver.add_queue(sock, queue)
        self._bound.append(RxQueue(self, queue, sock))
        return self._bound[-1]

    def steer(self, rule: Rule, sock: socket.socket) -> None:
        """Steer what matches `rule` to the socket of a queue. Raises UsageError, SrdError if the kernel refuses."""
        assert self._steering is not None  # noqa: S101 - a queue is bound
        try:
            self._steering.steer(rule, sock)
        except ValueError as error:
            raise UsageError(str(error)) from None
        except OSError as error:
            remedy = "; raise net.core.optmem_max, or use fewer rules" if error.errno == errno.ENOMEM else ""
            raise SrdError(f"the kernel refuses the rule: {error.strerror}{remedy}") from error

    def remove_peer(self, context: int) -> None:
        """Remove the rules of a peer that has ended."""
        if self._steering is not None:
            self._steering.remove_peer(context)

    def remove(self, queue: RxQueue, memory: RxMemory, sock: socket.socket) -> None:
        """Take a queue out of service."""
        assert self._steering is not None  # noqa: S101 - a queue is bound
        self._bound.remove(queue)
        self._steering.redirect(sock)
        if self._driver is not None:
            self._driver.remove_queue(sock)
        self._steering.remove(sock)
        memory.buffers.close()
        self._try_retire(memory)

    def _try_retire(self, queue: RxMemory) -> None:
        """Release the region of an unbound queue, if no extent in it is held."""
        if queue.buffers.closed and queue.pool.idle and queue.number in self._queues:
            self._retire(queue)

    def _retire(self, queue: RxMemory) -> None:
        copied, refused = self._before
        self._before = (copied + queue.bytes_copied, refused + queue.refused_packets)
        del self._queues[queue.number]
        queue.pool.release()

    # -- extents ------------------------------------------------------------------------------------------------

    def view(self, extent: Extent) -> memoryview:
        """Return a view of an extent. Raises PoolError if its memory has been released."""
        queue = self._queues.get(extent.region_offset >> REGION_SHIFT)
        if queue is None:
            raise PoolError("the piece was returned, or its endpoint is closed")
        return queue.view(extent)

    def copy(self, region_offset: int, *, length: int) -> bytes:
        """Return bytes that have landed, and are held. Raises PoolError if their region is not in use any more."""
        queue = self._queues.get(region_offset >> REGION_SHIFT)
        if queue is None:
            raise PoolError("the piece was returned, or its endpoint is closed")
        start = region_offset & OFFSET_MASK
        return queue.region[start : start + length]

    def drop(self, extents: Sequence[Extent]) -> None:
        """Release the memory of extents."""
        for extent in extents:
            if queue := self._queues.get(extent.region_offset >> REGION_SHIFT):
                queue.drop(extent)
                if queue.number:
                    self._try_retire(queue)

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Call `callback` in the event loop, whatever the caller interrupts: for finalizers, which run anywhere."""
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(callback)

    def count_copy(self, size_bytes: int) -> None:
        """Count a copy made by `Message.gather` or `Peer.send`."""
        self._api_copied_bytes += size_bytes

    # -- counters -------------------------------------------------------------------------------------------------

    @property
    def bytes_copied(self) -> int:
        """Payload bytes that were copied after they landed, or before they were sent."""
        return self._before[0] + self._api_copied_bytes + sum(queue.bytes_copied for queue in self._queues.values())

    @property
    def refused_packets(self) -> int:
        """Packets dropped because no memory was free."""
        return self._before[1] + sum(queue.refused_packets for queue in self._queues.values())

    # -- lifecycle ----------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Unbind all queues and release every region, after the driver; extents cannot be returned any more."""
        for queue in self._bound.copy():
            queue.unbind()
        self.tokens.forget()
        for memory in list(self._queues.values()):
            self._retire(memory)
