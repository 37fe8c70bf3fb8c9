"""The engine: protocol core, sockets and receive queues of one endpoint, driven by an asyncio event loop; no futures.

The owner posts work requests and gets events. `Endpoint` is the owner that gives applications futures and messages; an
emulated network card is another.

Rules.
1. What a call causes (packets, events) happens in the driver's next turn, never within the call. An event's handler may
   call the engine.
2. `on_event` is called with every event of the core, in order. An exception in it ends only the peer of the event.
3. An internal error ends the engine: all peers end with LOCAL_ERROR_QP_INTERNAL_ERROR, then `on_failure` is called.
4. The memory of a message stays held until `release`. That of an aborted message, or of an ended peer, is freed here.
"""

from __future__ import annotations

import asyncio
import errno
import os
import random
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from typing import Final

from devmem.errors import RegionError
from devmem.region import Region
from netns.base.addresses import host_port_text
from srd.config import EndpointConfig
from srd.errors import NoRouteError, SrdError, UsageError
from srd.io.addresses import canonical, host_text
from srd.io.driver import Driver
from srd.io.socket import IP_UDP_BYTES, is_wildcard, open_socket, route_to, socket_id
from srd.io.syscalls import Address
from srd.names import MAPPED
from srd.proto.base.security import CredentialCheck
from srd.proto.endpoint.core import EndpointCore
from srd.proto.events import Event, Extent, MessageAborted, PeerEnded, PeerOpened
from srd.proto.memory import Destinations, Memory
from srd.proto.trace import PortBound, Trace
from srd.proto.wire.data import MIN_DATAGRAM_BYTES
from srd.proto.wire.status import Status
from srd.proto.work_request import BatchRequest, WorkRequest
from srd.rx_queues import RxQueueTable

FALLBACK_MTUS: Final = (1500, 1280)
"""Tried when packets of the route's own MTU are not answered: Ethernet's MTU, and the minimum MTU of IPv6."""
CLOSES_PER_TURN: Final = 100
"""CLOSE packets that one turn of the driver is certain to send."""


class Engine:
    """One endpoint's transport. Peers and requests are numbers, as in the core's events."""

    def __init__(
        self,
        config: EndpointConfig,
        address: Address,
        *,
        family: socket.AddressFamily,
        accepting: bool,
        memory: Memory,
        destinations: Destinations | None = None,
        on_event: Callable[[Event], None],
        on_failure: Callable[[str], None],
        trace: Trace | None = None,
        answers: Callable[[str], bool] | None = None,
    ) -> None:
        """Bind `address`, and start. Raises SrdError if that cannot be had.

        `accepting`: whether others may open peers; `memory`: the registrations for writes and reads; `destinations`:
        who takes messages, None: the owner takes all; `on_failure`: called with the reason; `trace`: receives the trace
        events of every peer; `answers`: whether a host without a peer gets replies, None: any does.
        """
        self.config = config
        self._on_event = on_event
        self._trace = trace
        self._on_failure = on_failure
        with ExitStack() as opened:
            sockets = _open_sockets(address, family=family, count=config.protocol.paths, opened=opened)
            bound = canonical(sockets[0].getsockname())
            self.address: tuple[str, int] = (host_text(bound), bound[1])
            self._bound_host: str = bound[0]
            self._ports: list[int] = [sock.getsockname()[1] for sock in sockets]  # of the primary paths
            self.trust = config.security.open(socket_id=socket_id(bound))
            secure = self.trust.handshakes is not None
            # First what may reject the configuration, then what has to be released.
            self.core = self._new_core(
                accepting=accepting, memory=memory, destinations=destinations, trace=trace, answers=answers
            )
            self._region = Region(config.receive_region_bytes, name="srd-receive")
            self.queues = RxQueueTable(
                config,
                self._region,
                first=sockets[0],
                contexts=self.core.contexts,
                protections=self.core.protections if secure else None,
            )
            self.driver = Driver(
                self.core,
                sockets=sockets,
                queue=self.queues.host,
                secure=secure,
                open_socket=partial(_open_another, address, family=family),
                busy_poll=config.busy_poll,
                adaptive_poll_s=config.adaptive_poll_s,
                allowance=config.allowance,
                on_event=self._take_event if trace is None else self._take_traced_event,
                on_failure=self._fail,
            )
            self.queues.start(self.driver)
            opened.pop_all()  # the driver closes them from now on

    def _new_core(
        self,
        *,
        accepting: bool,
        memory: Memory,
        destinations: Destinations | None,
        trace: Trace | None,
        answers: Callable[[str], bool] | None,
    ) -> EndpointCore:
        return EndpointCore(
            self.config.protocol,
            datagram_bytes=self.config.datagram_bytes,
            secret=os.urandom(32),
            new_context=lambda: int.from_bytes(os.urandom(8), "big"),
            rng=random.Random(os.urandom(16)),  # noqa: S311 - chooses paths, not secrets
            accepting=accepting,
            trace=trace,
            memory=memory,
            destinations=destinations,
            security=self.trust.handshakes,
            read=lambda offset, length: self.queues.copy(offset, length=length),
            answers=None if answers is None else lambda address: answers(address[0]),
        )

    # -- peers --------------------------------------------------------------------------------------------------

    def connect(
        self,
        address: Address,
        *,
        family: socket.AddressFamily,
        name: str,
        check_credential: CredentialCheck | None = None,
    ) -> int:
        """Start to open a peer; return its number. PeerOpened or PeerEnded follows.

        `check_credential`: which credential it must have. Raises NoRouteError, which calls the peer by `name`, without
        a route that carries SRD.
        """
        try:
            mtu, source_host = route_to(address, family=family)
        except OSError as error:
            raise NoRouteError(f"{name}: no route to it ({error.strerror}); check the address") from error
        header_bytes = IP_UDP_BYTES[socket.AF_INET if address[0].startswith(MAPPED) else family]
        if (least := MIN_DATAGRAM_BYTES + header_bytes) > mtu:
            raise NoRouteError(
                f"{name}: the route's MTU is {mtu} bytes; SRD needs at least {least} ({MIN_DATAGRAM_BYTES}-byte "
                "datagrams); raise the MTU of the interface"
            )
        largest = min(mtu - header_bytes, self.config.datagram_bytes)
        smaller = (size - header_bytes for size in FALLBACK_MTUS)
        sizes = (largest, *(size for size in smaller if size < largest))
        if not is_wildcard(self._bound_host):
            source_host = self._bound_host
        sources = [(source_host, port) for port in self._ports]
        number = self.core.connect(
            address, sizes=sizes, sources=sources, check_credential=check_credential, now=time.monotonic()
        )
        self.driver.wake()
        return number

    def close_peer(self, peer: int) -> None:
        """Close a peer in an orderly way, after what was posted; PeerEnded follows."""
        with suppress(UsageError):  # the peer has ended
            self.core.close(peer, now=time.monotonic())
            self.driver.wake()

    def flush_peer(self, peer: int) -> None:
        """End a peer's open requests with FLUSHED."""
        self.core.flush(peer, now=time.monotonic())
        self.driver.wake()

    def fail_peer(self, peer: int, *, reason: str) -> None:
        """End a peer that has sent what no conforming one does, as the core ends those that violate the protocol."""
        self.core.abandon(peer, status=Status.REMOTE_ERROR_ABORT, reason=reason, now=time.monotonic())
        self.driver.wake()

    def abandon(self, peers: Sequence[int]) -> None:
        """Close peers at once, without waiting for the other end to confirm; open requests end with FLUSHED."""
        now = time.monotonic()
        for peer in peers:
            self.close_peer(peer)
            self.core.flush(peer, now=now)
        for _ in peers[::CLOSES_PER_TURN]:
            self.driver.flush()
        for peer in peers:
            self.core.abandon(peer, status=Status.OK, reason="closed; the other end did not confirm", now=now)
        self.driver.flush()

    # -- requests -----------------------------------------------------------------------------------------------

    def post(self, peer: int, wr: WorkRequest) -> None:
        """Post a work request, with addresses of this process; see `EndpointCore.post`."""
        self.core.post(peer, wr)
        self.driver.wake()

    def post_batch(self, peer: int, batch: BatchRequest) -> None:
        """Post a batch of sends, with addresses of this process; see `EndpointCore.post_batch`."""
        self.core.post_batch(peer, batch)
        self.driver.wake()

    def cancel(self, peer: int, *, request: int) -> None:
        """End a request with FLUSHED; its memory is not read any more."""
        self.core.cancel(peer, request=request, now=time.monotonic())
        self.driver.drop_unsent()
        self.driver.wake()

    # -- memory -------------------------------------------------------------------------------------------------

    def on_deregistered(self, is_withdrawn: Callable[[int], bool]) -> None:
        """Note that registrations no longer exist, by key: requests that use them end in error at both ends."""
        self.core.on_deregistered(is_withdrawn, now=time.monotonic())
        self.driver.drop_unsent()
        self.driver.wake()

    def release(self, peer: int, extents: Sequence[Extent], size_bytes: int, messages: int) -> None:
        """Take memory back from the application, and return the credit of these bytes and messages to the peer."""
        self.queues.drop(extents)
        self.core.release(peer, size_bytes=size_bytes, messages=messages, now=time.monotonic())
        self.driver.wake()

    # -- events -------------------------------------------------------------------------------------------------

    def _take_event(self, event: Event) -> None:
        try:
            self._on_event(event)
        except Exception as error:  # noqa: BLE001 - reported to the loop's exception handler
            self._fail_peer(event, error)
        if isinstance(event, MessageAborted | PeerEnded):  # no credit belongs to it
            self.queues.drop(event.released)

    def _take_traced_event(self, event: Event) -> None:
        """Add to the trace what the core does not know: the paths' source ports."""
        if isinstance(event, PeerOpened | PeerEnded) and self._trace is not None:
            known = 0 if isinstance(event, PeerOpened) else self.config.protocol.paths
            for path, port in list(enumerate(self.driver.source_ports))[known:]:
                self._trace.record(PortBound(path, port), peer=event.peer, now=time.monotonic())
        self._take_event(event)

    def _fail_peer(self, event: Event, error: Exception) -> None:
        status, reason = Status.LOCAL_ERROR_QP_INTERNAL_ERROR, f"internal error: {error!r}"
        asyncio.get_running_loop().call_exception_handler({"message": f"{event}: {reason}", "exception": error})
        self.core.abandon(event.peer, status=status, reason=reason, now=time.monotonic())

    def _fail(self, error: Exception) -> None:
        """Handle an internal error of the driver, which has closed itself."""
        status, reason = Status.LOCAL_ERROR_QP_INTERNAL_ERROR, f"internal error: {error!r}"
        with suppress(Exception):  # the core itself may be broken
            for number in self.core.open_peers:
                self.core.abandon(number, status=status, reason=reason, now=time.monotonic())
            self._deliver_rest()
        self._on_failure(reason)

    def _deliver_rest(self) -> None:
        """Handle the core's remaining events after the driver has stopped."""
        while (event := self.core.poll_event()) is not None:
            self._take_event(event)

    # -- lifecycle ----------------------------------------------------------------------------------------------

    @property
    def dropped_packets(self) -> int:
        """Datagrams that this host dropped because a socket buffer was full or the region had no free memory."""
        return self.driver.dropped_packets() + self.queues.refused_packets

    def close(self) -> None:
        """Abandon all peers, deliver what is left, close the sockets, and release the memory, even if steps raise."""
        with ExitStack() as stack:  # runs from the last callback to the first
            stack.callback(self._close_region)
            stack.callback(self.queues.close)
            stack.callback(self._deliver_rest)
            stack.callback(self.driver.close)
            stack.callback(self.abandon, self.core.open_peers)

    def _close_region(self) -> None:
        with suppress(RegionError):  # the application still has a view of a message: the last view frees the memory
            self._region.close()


def _open_sockets(
    address: Address, *, family: socket.AddressFamily, count: int, opened: ExitStack
) -> list[socket.socket]:
    """Open the sockets of `count` paths, to be closed by `opened`."""
    sockets: list[socket.socket] = []
    try:
        for index in range(count):
            sock = _open_another(address, family=family) if index else open_socket(address, family=family)
            opened.callback(sock.close)
            sockets.append(sock)
    except OSError as error:
        where = host_port_text(host_text(address), address[1])
        have = f"{len(sockets)} of the {count} sockets that {count} paths need could be opened"
        if error.errno in (errno.EMFILE, errno.ENFILE):
            raise SrdError(f"{have}: {error.strerror}; raise ulimit -n, or set fewer paths") from error
        if error.errno == errno.EADDRINUSE and (sockets or not address[1]):  # the system chooses the port
            raise SrdError(
                f"{have}: too few free ports; raise net.ipv4.ip_local_port_range, or set fewer paths"
            ) from error
        raise SrdError(f"{where}: cannot be bound: {error.strerror}") from error
    return sockets


def _open_another(address: Address, *, family: socket.AddressFamily) -> socket.socket:
    """Open the socket of another path: the same address, and an ephemeral source port of its own."""
    another: Address = (*address[:1], 0, *address[2:])
    return open_socket(another, family=family)
