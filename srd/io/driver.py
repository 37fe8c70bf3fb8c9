"""The loop that drives a protocol core over an endpoint's sockets, inside an asyncio event loop.

1. A turn reads every socket that has something (one epoll of our own holds them all), a bounded number of batches each,
   so that a flood on one starves nobody; then it sends, bounded too.
2. While messages go to and fro the application has its turn in between: what it answers goes first, and only then are
   acks heard that came with the message, and sent. Both ends deal with acks while they wait for each other anyway.
3. Turns that follow each other closely and carry a stream are spaced out, as a network card moderates its interrupts:
   being woken costs an interpreter more than a packet does. The kernel's timestamps keep round trips free of that rest.
   A stream is bulk of which more comes whatever this end does: acks let more of it go, a message is far from whole, or
   several came at once. Messages that go to and fro are not held up: after one that came soon after another the loop
   stays awake for a while instead of going to sleep (see `adaptive_poll`).
4. A socket that is full keeps the bursts it refused; nothing is sent until it is writable again.
5. With `busy_poll` the loop never sleeps: sockets are looked at without end, some times in a row whenever the loop
   comes by. Turns are not spaced out, and what is asked of the core goes out at the next look.
6. The core's clock is `time.monotonic()` in seconds; its deadlines go into a timerfd.
"""

from __future__ import annotations

import asyncio
import select
import socket
import time
from collections.abc import Callable, Sequence

from srd.io.adaptive_poll import AdaptivePoller
from srd.io.rx import RxRing
from srd.io.socket import dropped_packets, unreachable_addresses
from srd.io.timer import TimerFd
from srd.io.tx import MAX_TRIES, Transmitter
from srd.proto.core import EndpointCore
from srd.proto.events import (
    BatchCompletion,
    Completion,
    Event,
    MessageReceived,
    MessagesReceived,
    PeerEnded,
    WriteReceived,
)
from srd.proto.wire.control import Datagram
from srd.proto.wire.data import Address, Burst
from srd.proto.wire.status import Status

BATCHES_PER_TURN = 4
"""Receive batches of one socket before the others have their turn."""
RX_COALESCE_S = 0.0003
"""Between two turns of a busy endpoint: at 1 Gbit/s four packets of 9,000 bytes. With turns for every one or two
packets the two ends and the fabric of the demo spent most of their time on waking each other."""
BUSY_S = 0.001
"""Two turns closer than this make an endpoint busy, if they carry a stream."""
BULK_BYTES = 8 << 10
"""Payload received or sent in a turn from which that is bulk: a packet of 9,000 bytes is."""
SPINS = 16
"""Looks at the sockets, with `busy_poll`, before the loop has its turn: a look takes 0.5 us, a turn of the loop 3."""
TURN_BYTES = 1 << 20
"""Sent before the loop has its turn: what fits into a cache with the rest. Over veth, MTU 1500: 21.1 Gbit/s with 4 MiB,
23.3 with 1 MiB, 24.4 with half of it; MTU 9000: no difference."""
BURST_BYTES = 8 << 10
"""What a burst counts for besides its payload: it takes an interpreter about as long as the kernel takes for these."""


class Driver:
    """Moves packets between `sockets` (one a path; the first is the endpoint's own address) and `core`."""

    def __init__(
        self,
        core: EndpointCore,
        *,
        sockets: Sequence[socket.socket],
        queue: RxRing,
        open_socket: Callable[[], socket.socket],
        busy_poll: bool = False,
        adaptive_poll_s: float,
        on_event: Callable[[Event], None],
        on_failure: Callable[[Exception], None],
    ) -> None:
        """Take `on_failure` for errors of our own: after it nothing moves any more.

        `queue` receives from `sockets`; `add_queue` gives more. `open_socket` makes the socket of another path, when
        the core calls one of the reserve; it raises OSError. `adaptive_poll_s`: see `EndpointConfig`.
        """
        self._core = core
        self._sockets = {sock.fileno(): sock for sock in sockets}
        self._paths = list(sockets)
        self._queue = queue
        self._queues: dict[int, RxRing] = {}  # of sockets that are no path's
        self._open_socket = open_socket
        self._on_event = on_event
        self._on_failure = on_failure
        self._loop = asyncio.get_running_loop()
        self._timer = TimerFd()
        self._epoll = select.epoll()
        for fd in self._sockets:
            self._epoll.register(fd, select.EPOLLIN)
        self._transmitter = Transmitter(drain=self._icmp)
        self._wake_due = False
        self._full: socket.socket | None = None
        self._deferred: Burst | Datagram | None = (
            None  # taken from the core when the socket of those before it was full
        )
        self._controls: list[tuple[bytes, Address, float]] = []  # read and not heard yet: acks above all
        self._read_at = 0.0  # when the last turn read something
        self._since_s = 0.0  # how long after the one before
        self._answering = False  # whether the last turn left the word to the application
        self._coalesce_until: float | None = None  # sockets are not looked at before
        self._poller = AdaptivePoller(self._loop, window_s=adaptive_poll_s)
        # Of this turn: payload, what became whole, what the application was told, and whether it was told an end.
        self._read_bytes = self._sent_bytes = self._messages = self._events = 0
        self._ended = False
        self._busy_poll = busy_poll
        self._adaptive_poll_s = adaptive_poll_s
        self._closed = False
        self._dropped = 0  # packets, by the time of the end
        if busy_poll:
            self._loop.call_soon(self._spin)
        else:
            self._loop.add_reader(self._epoll.fileno(), self._on_readable)
        self._loop.add_reader(self._timer.fd, self._on_timer)

    def add_queue(self, sock: socket.socket, queue: RxRing) -> None:
        """Receive from a socket that is no path's into a queue of its own."""
        self._sockets[sock.fileno()] = sock
        self._queues[sock.fileno()] = queue
        self._epoll.register(sock.fileno(), select.EPOLLIN)

    def remove_queue(self, sock: socket.socket) -> None:
        """Read what such a socket still has, and then no more."""
        if self._closed:
            return
        while self._read_socket(sock):
            pass
        del self._sockets[sock.fileno()], self._queues[sock.fileno()]
        self._epoll.unregister(sock.fileno())
        self.wake()

    def wake(self) -> None:
        """Something was asked of the core: send and deliver what comes of it, once, soon."""
        if not self._wake_due and not self._closed:
            self._wake_due = True
            if not self._busy_poll:  # else the next look sees it
                self._loop.call_soon(self._on_wake)

    def flush(self) -> None:
        """Send and deliver now what `wake` would soon. Not from within an event's handler."""
        self._turn(read=False)

    def close(self) -> None:
        """Stop; close the sockets. What was not sent is not."""
        if self._closed:
            return
        self._dropped = self.dropped_packets()
        self._closed = True
        self._transmitter.discard()
        self._deferred = None
        self._poller.end()
        self._loop.remove_reader(self._timer.fd)
        self._loop.remove_reader(self._epoll.fileno())
        if self._full is not None:
            self._loop.remove_writer(self._full.fileno())
        self._epoll.close()
        self._timer.close()
        for sock in self._paths:
            sock.close()

    def dropped_packets(self) -> int:
        """Datagrams that the kernel dropped because a socket's buffer was full."""
        if self._closed:
            return self._dropped
        return sum(dropped_packets(sock) for sock in self._sockets.values())

    def _socket(self, path: int) -> socket.socket:
        """Return a path's socket. A path of the reserve gets one when it is called for the first time."""
        while path >= len(self._paths):
            try:
                sock = self._open_socket()
            except OSError:  # no descriptor or port is left: an old port is no worse than none
                return self._paths[path % len(self._paths)]
            self._paths.append(sock)
            self._sockets[sock.fileno()] = sock
            self._epoll.register(sock.fileno(), select.EPOLLIN)
        return self._paths[path]

    # -- turns --------------------------------------------------------------------------------------------------

    def _on_readable(self) -> None:
        self._turn(read=True)

    def _spin(self) -> None:
        """Look at the sockets until there is something to do, some times at most; come again."""
        for _ in range(SPINS):
            if self._closed:
                return
            ready = None if self._answering else self._epoll.poll(0)  # first the answer
            if ready or self._wake_due:
                self._wake_due = False
                self._turn(read=bool(ready))
                break
        self._loop.call_soon(self._spin)  # behind those that the turn has woken

    def _on_wake(self) -> None:
        self._wake_due = False
        self._turn(read=False)

    def _on_timer(self) -> None:
        if self._timer.acknowledge():
            self._turn(read=True)

    def _turn(self, *, read: bool) -> None:
        """Read, deliver, and either leave the word to the application or finish the turn; then set the alarm."""
        if self._closed:
            return
        self._read_bytes = self._sent_bytes = self._messages = self._events = 0
        self._ended = False
        try:
            heard = read and self._read()
            self._deliver()
            answered, self._answering = self._answering, heard and self._has_answers()
            if self._answering or self._finish_turn(read=read, answered=answered):
                self.wake()
        except Exception as error:
            self.close()
            self._on_failure(error)
            raise
        if not self._closed:  # an event's receiver may have closed us
            if read:
                self._coalesce(heard=heard)
            deadlines = [at for at in (self._core.poll_timeout(), self._coalesce_until) if at is not None]
            self._timer.arm(min(deadlines, default=None))

    def _finish_turn(self, *, read: bool, answered: bool) -> bool:
        """Send what was `answered`; hear acks, let time pass, deliver, send; return whether there is more."""
        more = answered and self._send_turn(acks_last=True)
        self._process_control()
        if read or answered:  # hear before you judge: else what is due makes the timer fire, and that turn reads
            self._core.handle_timeout(time.monotonic())
        self._deliver()
        more = more or self._send_turn(acks_last=False)
        self._deliver()
        return more

    # -- receiving ----------------------------------------------------------------------------------------------

    def _read(self) -> bool:
        """Read every socket that has something; return whether one had."""
        heard = False
        for fd, _ in self._epoll.poll(0):
            heard |= self._read_socket(self._sockets[fd])
        if heard:
            now = time.monotonic()
            self._since_s, self._read_at = now - self._read_at, now
        return heard

    def _expects_more_data(self) -> bool:
        """Whether what was read is part of a stream."""
        return self._read_bytes >= BULK_BYTES and (self._messages > 1 or self._core.expects_more_data)

    def _has_answers(self) -> bool:
        """Whether the application was told a short message, and so may have an answer, while they go to and fro."""
        told = self._messages > 0 and not self._ended  # who hears of an end may close this endpoint at once
        return told and self._since_s < self._adaptive_poll_s and self._read_bytes < BULK_BYTES

    def _coalesce(self, *, heard: bool) -> None:
        """Rest, stay awake, or neither, as it suits what this turn carried and how closely it followed on another."""
        rest_until = None
        if heard and not self._busy_poll:
            if self._expects_more_data() or self._sent_bytes >= BULK_BYTES:
                self._poller.suppress(self._read_at)
                rest_until = self._read_at + RX_COALESCE_S if self._since_s < BUSY_S else None
            elif self._events and self._since_s < self._adaptive_poll_s:
                self._poller.extend(self._read_at)
        if rest_until is not None and self._coalesce_until is None:
            self._loop.remove_reader(self._epoll.fileno())
        elif rest_until is None and self._coalesce_until is not None:
            self._loop.add_reader(self._epoll.fileno(), self._on_readable)
        self._coalesce_until = rest_until

    def _read_socket(self, sock: socket.socket) -> bool:
        """Take what a socket has, a turn's worth at most; return whether there was anything."""
        heard = False
        queue = self._queues.get(sock.fileno(), self._queue)
        for _ in range(BATCHES_PER_TURN):
            try:
                batch = queue.receive(sock)
            except OSError:  # of something that was sent: what has arrived still waits
                self._icmp(sock)
                continue
            if batch is None:
                self._icmp(sock)
                break
            heard = True
            self._read_bytes += batch.payload_bytes
            now = time.monotonic()
            admission = queue.admission if queue.memory_low else None
            self._process_control()  # those of batches before: in the order of their coming
            controls = batch.controls
            if batch.datagrams and controls:  # the application may have its turn before
                self._controls += controls
                controls = []
            kept = self._core.handle_packets(batch.datagrams, controls=controls, now=now, admission=admission)
            queue.commit(kept)
            if admission is not None:
                queue.reuse(batch.datagrams, kept=kept)
            if placements := self._core.pop_target_copies():
                if queue.predictor.context is None:  # they may be of any queue's peer
                    self._clear_hints()
                for placement in placements:
                    queue.copy_to_target(placement)
            if batch.no_memory:
                self._core.on_no_memory(batch.no_memory, now=now)
            if not batch.full:
                break
        return heard

    def _process_control(self) -> None:
        """Have the core take the control packets that came with data."""
        if self._controls:
            self._core.handle_packets((), controls=self._controls, now=time.monotonic())
            self._controls.clear()

    def _icmp(self, sock: socket.socket) -> None:
        for address in unreachable_addresses(sock):
            self._core.handle_icmp_unreachable(address, now=time.monotonic())

    # -- sending ------------------------------------------------------------------------------------------------

    def _deliver(self) -> None:
        settled = None  # peer whose memory is not read any more where its requests have completed
        while (event := self._core.poll_event()) is not None:
            if isinstance(event, Completion) and event.status is not Status.OK:
                self.drop_unsent()
            elif self._full is not None and isinstance(event, Completion | BatchCompletion) and event.peer != settled:
                settled = event.peer
                self._drop_acknowledged(settled)
            if isinstance(event, MessageReceived | WriteReceived):
                self._messages += 1
            elif isinstance(event, MessagesReceived):
                self._messages += event.count
            elif isinstance(event, PeerEnded):
                self._ended = True
            self._events += 1
            self._on_event(event)

    def drop_unsent(self) -> None:
        """Forget what a full socket refused, as lost, and where payload was to land: memory is its owner's again."""
        self._clear_hints()
        self._deferred = None
        self._transmitter.discard()

    def _drop_acknowledged(self, peer: int) -> None:
        """Forget what a full socket refused and was acknowledged meanwhile, as it had been sent before."""

        def goes(burst: Burst) -> bool:
            return not burst.payload_bytes or self._core.still_needed(burst, peer=peer)

        self._transmitter.copy_unsent(goes)
        if isinstance(self._deferred, Burst) and not goes(self._deferred):
            self._deferred = None

    def _clear_hints(self) -> None:
        for queue in self._queues.values():
            queue.predictor.clear_hint()

    def _send_turn(self, *, acks_last: bool) -> bool:
        """Send up to a turn's worth; return whether there is more. `acks_last`: after what was posted."""
        if self._closed or self._blocked():
            return False
        sent_bytes = 0
        while sent_bytes < TURN_BYTES:
            out, self._deferred = (
                self._deferred or self._core.poll_transmit(time.monotonic(), acks_last=acks_last),
                None,
            )
            if out is None:
                break
            if isinstance(out, Datagram):
                sent_bytes += BURST_BYTES
                if acks_last:
                    self._transmit()
                    if self._blocked():
                        self._deferred = out
                        return False
                self._send_datagram(out)
                continue
            sent_bytes += BURST_BYTES + out.payload_bytes
            self._sent_bytes += out.payload_bytes
            if not self._transmitter.has_room_for(out):
                self._transmit()
                if self._blocked():
                    self._deferred = out
                    return False
            self._transmitter.add(out)
        self._transmit()
        return out is not None and not self._blocked()

    def _blocked(self) -> bool:
        """Whether a socket is full: nothing is sent until it is writable."""
        return self._full is not None

    def _transmit(self) -> None:
        if (path := self._transmitter.path) is None:
            return
        sock = self._socket(path)
        if not self._transmitter.flush(sock):
            self._full = sock
            self._loop.add_writer(sock.fileno(), self._writable)

    def _writable(self) -> None:
        if self._full is not None:
            self._loop.remove_writer(self._full.fileno())
            self._full = None
            self._transmit()
            self.wake()

    def _send_datagram(self, datagram: Datagram) -> None:
        sock = self._socket(datagram.path)
        for _ in range(MAX_TRIES):
            try:
                sock.sendto(datagram.data, datagram.address)
            except BlockingIOError:
                break
            except OSError:  # of what went before, perhaps: see `transmit`
                self._icmp(sock)
            else:
                break
        # One that cannot be sent is lost: all control packets are repeated or made superfluous by later ones.
