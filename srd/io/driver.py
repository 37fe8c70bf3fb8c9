"""The loop that drives a protocol core over an endpoint's sockets, inside an asyncio event loop.

Theory of operation.
1. A turn reads every readable socket (one private epoll set holds them all) and then sends. Both are bounded: a turn
   reads at most `BATCHES_PER_TURN` batches from one socket, so that a flood on one socket does not starve the others.
2. In a request-response exchange the driver yields to the application between reading and finishing the turn. The
   reply goes out first, and takes the ACK of the request with it; what else is to be processed, or sent, is only after
   that. Both ends then do it while they wait for each other anyway. An owner that can reply at once does so in
   `after_delivery`, without a yield.
3. Turns of a stream are coalesced, and after a message of a request-response exchange the loop polls instead of
   sleeping: `turn_policy` decides, and has the driver's states. RTT samples do not include such a pause, since they use
   kernel timestamps.
4. When a socket is full, the bursts that it refused stay queued, and nothing is sent until it is writable again.
5. With `busy_poll` the loop never sleeps: each iteration of the event loop polls the sockets up to `SPINS` times.
   Turns are not coalesced, and what was posted to the core goes out at the next poll.
6. An endpoint with an allowance keeps to it (see `throttle`).
7. A turn that has read a segment train or so of a message, and not all of it, goes on reading for as long as more
   arrives: at such a rate the rest is there before the event loop has polled again. ACKs go out when the message is
   complete, or after `TURN_BYTES`. Where the rest does not come, as its sender shares the core or the link is slow, it
   does so less and less often.
8. The core's clock is `time.monotonic()` in seconds; its deadlines go into a timerfd.
"""

from __future__ import annotations

import asyncio
import math
import socket
import time
from collections.abc import Callable, Sequence
from typing import Final

from srd.io.adaptive_poll import AdaptivePoller
from srd.io.allowance import Allowance, AllowanceExceeded
from srd.io.rx_memory import SLOTS, RxMemory
from srd.io.secure_tx import SecureTransmitter
from srd.io.socket import IP_UDP_BYTES, icmp_errors
from srd.io.socket_set import SocketSet
from srd.io.throttle import AllowanceThrottle, Throttle
from srd.io.timer import TimerFd
from srd.io.turn_policy import BULK_BYTES, POLLS_SOCKETS, DriverState, Turn, TurnPolicy
from srd.io.tx import MAX_TRIES, Transmitter
from srd.proto.endpoint.core import EndpointCore
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
from srd.proto.wire.data import HEADER_BYTES, Address, Burst
from srd.proto.wire.protected import TAG_BYTES
from srd.proto.wire.status import Status

BATCHES_PER_TURN: Final = 4
"""Receive batches that a turn reads from one socket, so that the other sockets are not starved."""
SHARED_MESSAGES: Final = 2
"""Messages (segment trains) that a batch has while several engines share the loop: of small packets, some 130."""
SHARED_TURN_BYTES: Final = 192 << 10
"""Bytes that such a turn sends: two or three segment trains."""
SHARED_TURN_S: Final = 0.0001
"""Time after which such a turn reads no further batch, and sends no further burst."""
SPINS: Final = 16
"""Polls per iteration of the event loop with `busy_poll`, as a poll costs less than an iteration."""
TURN_BYTES: Final = 1 << 20
"""Bytes sent before the driver yields to the event loop: what fits into the CPU cache beside other data."""
FAST_BYTES: Final = 32 << 10
"""Payload in one turn by which it shows that a message arrives at a high rate (rule 7). At 1 Gbit/s so much takes as
long as the longest pause between two turns."""
REST_S: Final = 0.00003
"""How long such a turn waits for more: what the sender needs between two bursts, at least."""
BURST_BYTES: Final = 8 << 10
"""Fixed cost of a burst in the budget of `TURN_BYTES`: the interpreter's time per burst, in bytes of kernel time."""


class Driver:
    """Moves packets between `sockets` (one per path; the first has the endpoint's own address) and `core`."""

    def __init__(
        self,
        core: EndpointCore,
        *,
        sockets: Sequence[socket.socket],
        queue: RxMemory,
        secure: bool = False,
        open_socket: Callable[[], socket.socket],
        busy_poll: bool = False,
        adaptive_poll_s: float,
        allowance: Allowance | None = None,
        on_event: Callable[[Event], None],
        on_failure: Callable[[Exception], None],
    ) -> None:
        """Start to drive `core`. Raises OSError.

        `queue` receives from `sockets`; `add_queue` adds further queues. `open_socket` opens the socket of a standby
        path when the core first uses that path; it may raise OSError. `on_failure` is called once for an internal
        error, after the driver has closed itself. `adaptive_poll_s`: see `EndpointConfig`. `secure`: whether bursts are
        encrypted. `allowance`: what may be carried, None: no limit.
        """
        self._core = core
        self._sockets = SocketSet(sockets, open_socket=open_socket)
        self._queue = queue
        self._queues: dict[int, RxMemory] = {}  # of sockets that belong to no path, by descriptor
        self._on_event = on_event
        self._on_failure = on_failure
        self._loop = asyncio.get_running_loop()
        self._timer = TimerFd()
        self._transmitter = SecureTransmitter(drain=self._icmp) if secure else Transmitter(drain=self._icmp)
        self._wake_due, self._wakes = False, 0  # whether a turn is to come; scheduled calls of `_on_wake`
        self._after_delivery: dict[Callable[[], bool], None] = {}
        self._full: socket.socket | None = None  # nothing is sent until it is writable
        self._deferred: Burst | Datagram | None = None  # polled from the core when the socket before it was full
        self._controls: list[tuple[bytes, Address, float]] = []  # read but not processed yet, mostly ACKs
        self._state = DriverState.WAITING
        self._policy = TurnPolicy(adaptive_poll_s=adaptive_poll_s, pauses=not busy_poll)
        self._poller = AdaptivePoller(self._loop)
        self._this_turn = Turn(reads=False)
        self._busy_poll = busy_poll
        self._is_shared = False
        self._throttle = Throttle()
        if allowance is not None:
            header_bytes = IP_UDP_BYTES[self._sockets.family] + HEADER_BYTES + (TAG_BYTES if secure else 0)
            self._throttle = AllowanceThrottle(
                allowance, overhead_bytes=header_bytes, datagram_bytes=core.datagram_bytes
            )
        self.turns = 0  # that read
        self._ready: list[int] | None = None  # sockets that are readable; None: not known
        if busy_poll:
            self._loop.call_soon(self._spin)
        else:
            self._loop.add_reader(self._sockets.fd, self._on_readable)
        self._loop.add_reader(self._timer.fd, self._on_timer)

    @property
    def source_ports(self) -> tuple[int, ...]:
        """The port of each path's socket, by the path's number, as far as they were opened."""
        return self._sockets.ports

    def add_queue(self, sock: socket.socket, queue: RxMemory) -> None:
        """Receive from a socket that belongs to no path into a queue of its own."""
        self._sockets.add(sock)
        self._queues[sock.fileno()] = queue

    def remove_queue(self, sock: socket.socket) -> None:
        """Read what the socket of such a queue still holds, and stop receiving from it."""
        if self._closed:
            return
        while self._read_socket(sock):
            pass
        del self._queues[sock.fileno()]
        self._sockets.remove(sock)
        self.wake()

    def share_loop(self, *, is_shared: bool) -> None:
        """Keep turns short, or not: other engines in the same loop wait for them. Short turns cost throughput."""
        self._is_shared = is_shared

    def wake(self) -> None:
        """Schedule a turn, once, that sends and delivers what results from a call to the core."""
        if not self._wake_due and not self._closed:
            self._wake_due = True
            if not self._wakes:
                self._schedule_wake()

    def _wake_last(self) -> None:
        """Schedule that turn behind the callbacks that are scheduled now, even if it was scheduled before them."""
        self._wake_due = True
        self._schedule_wake()

    def _schedule_wake(self) -> None:
        if not self._busy_poll:  # else the next poll sees that a turn is due
            self._wakes += 1
            self._loop.call_soon(self._on_wake)

    def flush(self) -> None:
        """Send and deliver now instead of in the turn that `wake` schedules. Not from within an event's handler."""
        self._turn(read=False)

    def close(self) -> None:
        """Stop, and close the sockets: what is queued for sending is never sent."""
        if self._closed:
            return
        self._enter(DriverState.CLOSED)
        self._poller.end()
        self._loop.remove_reader(self._timer.fd)
        if self._full is not None:
            self._loop.remove_writer(self._full.fileno())
        self._timer.close()
        self._sockets.close()

    @property
    def _closed(self) -> bool:
        return self._state is DriverState.CLOSED

    def dropped_packets(self) -> int:
        """Return the datagrams that the kernel dropped because a socket's buffer was full."""
        return self._sockets.dropped_packets()

    @property
    def allowance_exceeded(self) -> AllowanceExceeded:
        """What had to wait for the allowance; zeros without one."""
        return self._throttle.exceeded

    # -- turns --------------------------------------------------------------------------------------------------

    def _on_readable(self) -> None:
        if self._state is not DriverState.YIELDED:  # else the reply's turn comes first; the sockets stay readable
            self._turn(read=True)

    def _spin(self) -> None:
        """Poll the sockets up to `SPINS` times, until there is something to do; schedule the next call."""
        for _ in range(SPINS):
            if self._closed:
                return
            if self.poll():
                break
        self._loop.call_soon(self._spin)  # after the callbacks that the turn has scheduled

    def poll(self) -> bool:
        """Read what has arrived and send what was posted, now; return whether there was anything.

        For an owner that polls several drivers in a loop of its own. Not from within an event's handler.
        """
        if self._closed:
            return False
        # After a yield the reply is sent before more is read.
        polls = POLLS_SOCKETS[self._state] and self._state is not DriverState.YIELDED
        ready = self._poll_sockets() if polls else None
        if not ready and not self._wake_due:
            return False
        self._wake_due = False
        self._ready = ready or None  # an empty list would keep a later turn, such as a timer's, from looking
        self._turn(read=bool(ready))
        return True

    def _poll_sockets(self) -> list[int]:
        """Return the readable sockets. In a shared turn one at a time: the kernel puts it behind the others."""
        return self._throttle.in_turn(self._sockets.readable(1 if self._is_shared else -1))

    @property
    def yields(self) -> bool:
        """Whether it waits for the application's reply to what it has delivered (rule 2)."""
        return self._state is DriverState.YIELDED

    def _on_wake(self) -> None:
        self._wakes -= 1
        if self._wake_due and not self._wakes:  # else another turn has done it, or another call comes behind
            self._wake_due = False
            self._turn(read=False)

    def _on_timer(self) -> None:
        if self._state is not DriverState.YIELDED and self._timer.acknowledge():  # else see `_on_readable`
            self._turn(read=True)

    def _turn(self, *, read: bool) -> None:
        """Read, deliver, and either yield so that the application can reply, or finish the turn; arm the timer."""
        if self._closed:
            return
        turn = self._this_turn = Turn(reads=read and self._throttle.may_read())
        try:
            if turn.reads:
                self._read(turn)
            self._deliver(turn)
            answered = self._state is DriverState.YIELDED or self._has_replied(turn)
            expects_more = self._core.expects_more_data
            yields = turn.received and not answered and self._policy.yields(turn, expects_more=expects_more)
            if yields:
                self._wake_last()  # a turn before the application's would send the ACKs first
            elif self._finish_turn(turn, answered=answered):
                self.wake()
        except Exception as error:
            self.close()
            self._on_failure(error)
            raise
        if not self._closed:  # an event's handler may have closed the driver
            self._end_turn(turn, yields=yields)

    def _end_turn(self, turn: Turn, *, yields: bool) -> None:
        """Enter the next state, and set the timer."""
        policy, may_read = self._policy, self._throttle.may_read()
        state = policy.after(
            turn, state=self._state, yields=yields, expects_more=self._core.expects_more_data, may_read=may_read
        )
        if state is DriverState.COALESCING and turn.received:
            self._poller.suppress(policy.read_at)
        elif policy.poll_s:
            self._poller.extend(policy.read_at, window_s=policy.poll_s)
        self._enter(state)
        at = self._core.poll_timeout()
        if policy.pause_until is not None and (at is None or policy.pause_until < at):
            at = policy.pause_until
        self._timer.arm(self._throttle.wake_at(at, reads=state is not DriverState.LIMITED, sends=self._full is None))

    def _finish_turn(self, turn: Turn, *, answered: bool) -> bool:
        """Send the reply if `answered`; process ACKs and timeouts, deliver, send; return whether more is to be sent.

        ACKs are processed before timeouts, or acknowledged data is declared lost. So timeouts are left alone in a turn
        that neither read nor was `answered`: they make the timer fire, and the timer's turn reads.
        """
        more = answered and (self._send_turn(turn, data_only=True) or self._send_turn(turn, data_only=False))
        self._process_control()
        if turn.reads or answered:
            self._core.handle_timeout(time.monotonic())
        self._deliver(turn)
        self._wake_due = False  # what was posted until now goes out here, or is held back by what wakes the driver
        more = more or self._send_turn(turn, data_only=False)
        self._deliver(turn)
        return more

    def after_delivery(self, callback: Callable[[], bool]) -> None:
        """Call back once in this turn, when all that has arrived is delivered; outside of a turn: in the next one.

        It returns whether it has posted a reply, which then goes out before the acknowledgements.
        """
        self._after_delivery[callback] = None

    def _has_replied(self, turn: Turn) -> bool:
        """Make the calls of `after_delivery`; return whether the turn is one of a request-response exchange."""
        if not self._after_delivery:
            return False
        callbacks, self._after_delivery = self._after_delivery, {}
        has_posted = False
        for callback in callbacks:
            has_posted |= callback()
        return has_posted and turn.read_bytes < BULK_BYTES

    # -- receiving ----------------------------------------------------------------------------------------------

    def _read(self, turn: Turn) -> None:
        """Read every readable socket."""
        self.turns += 1
        ready, self._ready = self._ready, None
        until = time.monotonic() + SHARED_TURN_S if self._is_shared else 0.0
        throttle = self._throttle
        while ready := self._poll_sockets() if ready is None else ready:
            for fd in ready:
                if throttle.unread or not throttle.may_read():
                    throttle.unread.add(fd)
                elif self._read_socket(self._sockets.by_fd[fd]):
                    turn.received = True
            is_little = turn.read_bytes < BULK_BYTES and not self._is_shared
            if throttle.unread or is_little or time.monotonic() >= until:
                break  # after little, more is seldom there, and the event loop looks, too
            ready = None
        if turn.received:
            if not self._is_shared:
                self._read_rest(turn)
            self._policy.on_read(time.monotonic())

    def _read_rest(self, turn: Turn) -> None:
        """Read the rest of a message that arrives at a high rate (rule 7)."""
        is_rest_due = self._core.awaits_rest and turn.read_bytes >= FAST_BYTES
        if not is_rest_due or not self._policy.polls_for_rest():
            return
        now, first_bytes = time.monotonic(), turn.read_bytes
        until = now + REST_S
        while now < until and turn.read_bytes < TURN_BYTES and self._core.awaits_rest and self._throttle.may_read():
            before = turn.read_bytes
            for fd in self._poll_sockets():
                self._read_socket(self._sockets.by_fd[fd])
            now = time.monotonic()
            if turn.read_bytes > before:
                until = now + REST_S
        self._policy.on_rest(has_come=turn.read_bytes > first_bytes)

    def _enter(self, state: DriverState) -> None:
        """Change the state, and have the event loop poll the sockets or not."""
        if not self._busy_poll and POLLS_SOCKETS[state] is not POLLS_SOCKETS[self._state]:
            if POLLS_SOCKETS[state]:
                self._loop.add_reader(self._sockets.fd, self._on_readable)
            else:
                self._loop.remove_reader(self._sockets.fd)
        self._state = state

    def _read_socket(self, sock: socket.socket) -> bool:
        """Read up to `BATCHES_PER_TURN` batches from a socket; return whether anything was received."""
        received = False
        queue, throttle = self._queues.get(sock.fileno(), self._queue), self._throttle
        most = SHARED_MESSAGES if self._is_shared else SLOTS
        left = most if self._is_shared else most * BATCHES_PER_TURN
        while left > 0:
            queue.batch_messages = throttle.batch_messages(most)
            left -= queue.batch_messages
            try:
                batch = queue.receive(sock)
            except OSError:  # an ICMP error about a datagram sent earlier: received datagrams still wait
                self._icmp(sock)
                continue
            if batch is None:
                self._icmp(sock)
                break
            received = True
            self._this_turn.read_bytes += batch.payload_bytes
            now = time.monotonic()
            throttle.charge_batch(batch, now=now)
            self._process_control()  # those of earlier batches, to keep the order of arrival
            controls = batch.controls
            if batch.datagrams and controls:  # deferred, so that the application can reply first
                self._controls += controls
                controls = []
            result = self._core.handle_packets(
                batch.datagrams, controls=controls, no_memory=batch.no_memory, low_region=batch.low_region, now=now
            )
            queue.commit(batch, result)
            if not (batch.full and throttle.may_read()):
                break
        return received

    def _process_control(self) -> None:
        """Pass the deferred control packets, which came with data, to the core."""
        if self._controls:
            self._core.handle_packets((), controls=self._controls, now=time.monotonic())
            self._controls.clear()

    def _icmp(self, sock: socket.socket) -> None:
        errors = icmp_errors(sock)
        for address in errors.unreachable:
            self._core.handle_icmp_unreachable(address, now=time.monotonic())
        for address, size_bytes in errors.too_big.items():
            self._core.handle_icmp_too_big(address, size_bytes=size_bytes)

    # -- sending ------------------------------------------------------------------------------------------------

    def _deliver(self, turn: Turn) -> None:
        checked = None  # the last peer whose completed requests were removed from the transmitter
        while (event := self._core.poll_event()) is not None:
            turn.events += 1
            if isinstance(event, Completion | BatchCompletion):
                if isinstance(event, Completion) and event.status is not Status.OK:
                    self.drop_unsent()
                elif self._full is not None and event.peer != checked:
                    checked = event.peer
                    self._drop_acknowledged(checked)
            elif isinstance(event, MessageReceived | WriteReceived):
                turn.messages += 1
            elif isinstance(event, MessagesReceived):
                turn.messages += event.count
            elif isinstance(event, PeerEnded):
                turn.ended = True
            self._on_event(event)

    def drop_unsent(self) -> None:
        """Drop what a full socket refused, as lost: it refers to the application's memory."""
        self._deferred = None
        self._transmitter.discard()

    def _drop_acknowledged(self, peer: int) -> None:
        """Drop retransmissions that a full socket refused and whose originals were acknowledged meanwhile."""

        def is_needed(burst: Burst) -> bool:
            return not burst.payload_bytes or self._core.still_needed(burst, peer=peer)

        self._transmitter.drop_unneeded(is_needed)
        if isinstance(self._deferred, Burst) and not is_needed(self._deferred):
            self._deferred = None

    def _send_turn(self, turn: Turn, *, data_only: bool) -> bool:
        """Send up to `TURN_BYTES`; return whether there is more. `data_only`: no ACKs, which it would take to make."""
        if self._closed or self._blocked():
            return False
        sent_bytes = 0
        most_bytes = SHARED_TURN_BYTES if self._is_shared else TURN_BYTES
        out, until = None, time.monotonic() + SHARED_TURN_S if self._is_shared else math.inf
        while sent_bytes < most_bytes:
            now = time.monotonic()
            if now >= until:
                self._transmit()
                return True
            out = self._deferred or self._throttle.poll_transmit(self._core, data_only=data_only, now=now)
            self._deferred = None
            if out is None:
                break
            if isinstance(out, Datagram):
                sent_bytes += BURST_BYTES
                self._send_datagram(out)
                continue
            sent_bytes += BURST_BYTES + out.carried_bytes
            turn.sent_bytes += out.payload_bytes
            if not self._transmitter.has_room_for(out):
                self._transmit()
                if self._blocked():
                    self._deferred = out
                    return False
            self._transmitter.add(out)
        self._transmit()
        return out is not None and not self._blocked()

    def _blocked(self) -> bool:
        """Whether a socket is full; nothing is sent until it is writable."""
        return self._full is not None

    def _transmit(self) -> None:
        if (port := self._transmitter.port) is None:
            return
        sock = self._sockets.of_path(port)
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
        sock = self._sockets.of_path(datagram.path)
        for _ in range(MAX_TRIES):
            try:
                sock.sendto(datagram.data, datagram.address)
            except BlockingIOError:
                break
            except OSError:  # perhaps an ICMP error about an earlier datagram: see `tx`
                self._icmp(sock)
            else:
                break
        # A control packet that cannot be sent is lost: each one is repeated, or superseded by a later one.
