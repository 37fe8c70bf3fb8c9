"""The loop that drives a protocol core over an endpoint's sockets, inside an asyncio event loop.

1. What arrived is taken in batches, a bounded number a turn, so that a flood on one socket starves nobody.
2. Sending is one job (`flush`) that runs once after all sockets of a turn were read, and is bounded too.
3. A socket that is full keeps the bursts it refused; nothing is sent until it is writable again.
4. The core's clock is `time.monotonic()` in seconds; its deadlines go into a timerfd.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from devmem.pool import Pool
from srd.io.libc import TimerFd
from srd.io.receive import Batch, ReceiveQueue
from srd.io.socket import dropped_packets, unreachable_addresses
from srd.io.transmit import Transmitter
from srd.proto.control import Datagram
from srd.proto.endpoint import EndpointCore
from srd.proto.events import Event
from srd.proto.wire import Burst

BATCHES_PER_TURN = 4
"""Receive batches of one socket before the others have their turn."""
LATE_S = 0.002
"""A timer this late was held up: by a long turn, or by a host that gave the processor to others."""
SENDS_PER_TURN = 64
"""Bursts and control packets before the loop has its turn."""


class Driver:
    """Moves packets between `sockets` (one a path; the first is the endpoint's own address) and `core`."""

    def __init__(
        self,
        core: EndpointCore,
        *,
        sockets: Sequence[socket.socket],
        queue: ReceiveQueue,
        pool: Pool,
        on_event: Callable[[Event], None],
    ) -> None:
        self._core = core
        self._sockets = list(sockets)
        self._queue = queue
        self._pool = pool
        self._on_event = on_event
        self._loop = asyncio.get_running_loop()
        self._timer = TimerFd()
        self._transmitter = Transmitter()
        self._flush_due = False
        self._full: socket.socket | None = None
        self._held: Burst | None = None  # taken from the core when the socket of those before it was full
        self._closed = False
        for sock in self._sockets:
            self._loop.add_reader(sock.fileno(), self._readable, sock)
        self._loop.add_reader(self._timer.fd, self._on_timer)

    def wake(self) -> None:
        """Something was asked of the core: send and deliver what comes of it, once, soon."""
        if not self._flush_due and not self._closed:
            self._flush_due = True
            self._loop.call_soon(self._flush)

    def close(self) -> None:
        """Stop; close the sockets. What was not sent is not."""
        if self._closed:
            return
        self._closed = True
        self._loop.remove_reader(self._timer.fd)
        if self._full is not None:
            self._loop.remove_writer(self._full.fileno())
        for sock in self._sockets:
            self._loop.remove_reader(sock.fileno())
            sock.close()
        self._timer.close()

    def dropped_packets(self) -> int:
        """Datagrams that the kernel dropped because a socket's buffer was full."""
        return sum(dropped_packets(sock) for sock in self._sockets)

    # -- receiving ----------------------------------------------------------------------------------------------

    def _readable(self, sock: socket.socket) -> None:
        for _ in range(BATCHES_PER_TURN):
            try:
                batch = self._queue.receive(sock)
            except OSError:
                batch = None
            if batch is None:
                self._icmp(sock)
                break
            self._take(batch)
            if not batch.full:
                break
        self.wake()

    def _take(self, batch: Batch) -> None:
        now = time.monotonic()
        for frag in self._core.handle_packets(batch.arrivals, controls=batch.controls, now=now):
            self._pool.hold(frag.region_offset, length=frag.length)

    def _icmp(self, sock: socket.socket) -> None:
        for address in unreachable_addresses(sock):
            self._core.handle_icmp_unreachable(address)

    def _on_timer(self) -> None:
        late_s = self._timer.take(now=time.monotonic())
        if late_s > LATE_S:
            # Hear before you judge: what this turn was late for may be waiting in a socket.
            for sock in self._sockets:
                self._readable(sock)
        self._core.handle_timeout(time.monotonic())
        self.wake()

    # -- sending ------------------------------------------------------------------------------------------------

    def _flush(self) -> None:
        self._flush_due = False
        if self._closed:
            return
        self._deliver()
        if self._full is None:
            more = self._send_turn()
            self._deliver()
            if more:
                self.wake()
        if not self._closed:  # an event's receiver may have closed us
            self._timer.arm(self._core.poll_timeout())

    def _deliver(self) -> None:
        while (event := self._core.poll_event()) is not None:
            self._on_event(event)

    def _send_turn(self) -> bool:
        """Send up to a turn's worth; return whether there is more."""
        for _ in range(SENDS_PER_TURN):
            out, self._held = self._held or self._core.poll_transmit(time.monotonic()), None
            if out is None:
                break
            if isinstance(out, Datagram):
                self._send_datagram(out)
                continue
            if self._transmitter.full or self._transmitter.path not in (None, out.path):
                self._transmit()
                if self._full is not None:
                    self._held = out
                    return False
            self._transmitter.add(out)
        self._transmit()
        return out is not None and self._full is None

    def _transmit(self) -> None:
        if (path := self._transmitter.path) is None:
            return
        sock = self._sockets[path]
        try:
            if not self._transmitter.flush(sock):
                self._full = sock
                self._loop.add_writer(sock.fileno(), self._writable)
        except OSError as error:
            # Refused by the network or by an earlier ICMP error: lost like any packet, and sent again like any.
            self._transmitter.discard()
            if error.errno == errno.ECONNREFUSED:
                self._icmp(sock)

    def _writable(self) -> None:
        if self._full is not None:
            self._loop.remove_writer(self._full.fileno())
            self._full = None
            self._transmit()
            self.wake()

    def _send_datagram(self, datagram: Datagram) -> None:
        sock = self._sockets[datagram.path]
        # A control packet that cannot be sent is lost: all of them are repeated or made superfluous by later ones.
        with suppress(OSError):
            sock.sendto(datagram.data, datagram.address)
