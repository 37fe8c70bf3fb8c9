"""The loop that drives a protocol core over an endpoint's sockets, inside an asyncio event loop.

Theory of operation.
1. A turn reads every readable socket (one private epoll set holds them all) and then sends. Both are bounded: a turn
   reads at most `BATCHES_PER_TURN` batches from one socket, so that a flood on one socket does not starve the others.
2. In a request-response exchange the driver yields to the application between reading and finishing the turn. The
   reply goes out first, and takes the ACK of the request with it; what else is to be processed, or sent, is only after
   that. Both ends then do it while they wait for each other anyway. An owner that can reply at once does so in
   `after_delivery`, without a yield.
3. Turns that carry a stream and follow each other closely are coalesced, like interrupt moderation on a network card,
   because a wake-up costs the interpreter more than a packet does. The pause follows the rate of the stream; at a high
   rate the loop polls briefly instead (see `moderation`). RTT samples do not include that delay, since they use kernel
   timestamps. A turn carries a stream if it sent or received bulk data of which more follows independently of the
   application: ACKs release more of it, a message is still incomplete, or several messages arrived at once.
   A request-response exchange is not delayed: after two messages in quick succession the loop polls for a while
   instead of sleeping (see `adaptive_poll`).
4. When a socket is full, the bursts that it refused stay queued, and nothing is sent until it is writable again.
5. With `busy_poll` the loop never sleeps: each iteration of the event loop polls the sockets up to `SPINS` times.
   Turns are not coalesced, and what was posted to the core goes out at the next poll.
6. An endpoint with an allowance (see `allowance`) sends no data while the outgoing one is exhausted, and reads nothing
   while the incoming one is. Both wait for a known time, so the timer ends the wait, and nothing is polled until then.
   Control packets go out nevertheless. Timeouts are left alone while nothing may be read: ACKs may wait unread, and
   what they acknowledge would be declared lost.
7. A turn that has read a segment train or so of a message, and not all of it, goes on reading for as long as more
   arrives: at such a rate the rest is there before the event loop has polled again. ACKs go out when the message is
   complete, or after `TURN_BYTES`.
8. The core's clock is `time.monotonic()` in seconds; its deadlines go into a timerfd.

States, each entered at the end of a turn:

    state       sockets polled  the next turn                             entered when a turn
    WAITING     yes             reads (if readable), delivers, sends      did neither of the following
    YIELDED     yes             sends the application's reply first       delivered what may be replied to (rule 2)
    COALESCING  no              reads, when the delay of rule 3 is over   carried a stream, soon after another such turn
    LIMITED     no              reads, when the allowance permits it      ended with the incoming allowance exhausted
    CLOSED      no              none                                      failed, or `close` was called
"""

from __future__ import annotations

import asyncio
import math
import select
import socket
import time
from collections.abc import Callable, Sequence
from enum import IntEnum, auto
from typing import Final

from srd.io.adaptive_poll import AdaptivePoller
from srd.io.allowance import MARK_AFTER_S, Allowance, AllowanceExceeded, DirectionLimit
from srd.io.moderation import BUSY_S, POLL_S, Moderator
from srd.io.rx_buffers import SUPER_BYTES
from srd.io.rx_memory import SLOTS, RxBatch, RxMemory
from srd.io.secure_tx import SecureTransmitter
from srd.io.socket import IP_UDP_BYTES, dropped_packets, icmp_errors
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
from srd.proto.wire.data import HEADER_BYTES, MAX_BURST_PACKETS, MAX_TRAIN_PACKETS, Address, Burst
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
BULK_BYTES: Final = 8 << 10
"""A turn that receives or sends at least this much payload carries bulk data; one packet of 9,000 bytes is enough."""
REPLIES_WITHIN_S: Final = 0.005
"""A message that follows another within this time may be a request, or a reply. Many round trips of a slow host; and a
stream of messages that is slower hardly loads a host if each of its turns takes twice as long."""
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


class DriverState(IntEnum):
    """What the driver waits for; see the module for what each state does.

    An IntEnum, as Enum's hash is a function in Python, and each turn looks the state up.
    """

    WAITING = auto()
    YIELDED = auto()
    COALESCING = auto()
    LIMITED = auto()
    CLOSED = auto()


POLLS_SOCKETS: Final = {
    DriverState.WAITING: True,
    DriverState.YIELDED: True,
    DriverState.COALESCING: False,
    DriverState.LIMITED: False,
    DriverState.CLOSED: False,
}
"""Whether the event loop polls the sockets."""


class Turn:
    """What a turn has done so far: payload read and sent, completed messages, events, whether a peer ended."""

    def __init__(self) -> None:  # no dataclass, whose constructor is not compiled
        self.read_bytes = 0
        self.sent_bytes = 0
        self.messages = 0
        self.events = 0
        self.ended = False


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
        self._sockets = {sock.fileno(): sock for sock in sockets}
        self._paths = list(sockets)
        self._queue = queue
        self._queues: dict[int, RxMemory] = {}  # of sockets that belong to no path, by descriptor
        self._open_socket = open_socket
        self._on_event = on_event
        self._on_failure = on_failure
        self._loop = asyncio.get_running_loop()
        self._timer = TimerFd()
        self._epoll = select.epoll()
        for fd in self._sockets:
            self._epoll.register(fd, select.EPOLLIN)
        self._transmitter = SecureTransmitter(drain=self._icmp) if secure else Transmitter(drain=self._icmp)
        self._wake_due, self._wakes = False, 0  # whether a turn is to come; scheduled calls of `_on_wake`
        self._after_delivery: dict[Callable[[], bool], None] = {}
        self._full: socket.socket | None = None
        self._deferred: Burst | Datagram | None = (
            None  # polled from the core when the socket of the bursts before it was full
        )
        self._controls: list[tuple[bytes, Address, float]] = []  # read but not processed yet, mostly ACKs
        self._read_at = 0.0  # when the last turn read something
        self._since_s = 0.0  # time between that turn and the one before that read something
        self._state = DriverState.WAITING
        self._coalesce_until: float | None = None  # end of the state COALESCING
        self._poller, self._moderator = AdaptivePoller(self._loop), Moderator()
        self._this_turn = Turn()
        self._busy_poll, self._adaptive_poll_s = busy_poll, adaptive_poll_s
        self._dropped = 0  # packets dropped by the kernel up to `close`
        self._is_shared = False
        self._limit(allowance, is_secure=secure)
        self.turns = 0  # that read
        self._ready: list[tuple[int, int]] | None = None  # sockets that are readable; None: not known
        if busy_poll:
            self._loop.call_soon(self._spin)
        else:
            self._loop.add_reader(self._epoll.fileno(), self._on_readable)
        self._loop.add_reader(self._timer.fd, self._on_timer)

    def _limit(self, allowance: Allowance | None, *, is_secure: bool) -> None:
        """Begin to keep to an allowance, at the creation of the driver."""
        self._incoming = None if allowance is None else DirectionLimit(allowance)
        self._outgoing = None if allowance is None else DirectionLimit(allowance)
        self._overhead_bytes = IP_UDP_BYTES[self._paths[0].family] + HEADER_BYTES + (TAG_BYTES if is_secure else 0)
        self._packet_bytes = self._overhead_bytes - HEADER_BYTES + self._core.datagram_bytes  # of a full packet
        self._send_at: float | None = None  # when data that the outgoing allowance holds back may go
        self._unread: set[int] = set()  # sockets that the incoming allowance left unread: the next ones to be read
        self._is_behind = False  # whether what is sent was held back before

    def add_queue(self, sock: socket.socket, queue: RxMemory) -> None:
        """Receive from a socket that belongs to no path into a queue of its own."""
        self._sockets[sock.fileno()] = sock
        self._queues[sock.fileno()] = queue
        self._epoll.register(sock.fileno(), select.EPOLLIN)

    def remove_queue(self, sock: socket.socket) -> None:
        """Read what the socket of such a queue still holds, and stop receiving from it."""
        if self._closed:
            return
        while self._read_socket(sock):
            pass
        del self._sockets[sock.fileno()], self._queues[sock.fileno()]
        self._epoll.unregister(sock.fileno())
        self.wake()

    def share_loop(self, *, is_shared: bool) -> None:
        """Keep turns short, or not: other engines in the same loop wait for them. Short turns cost throughput."""
        self._is_shared = is_shared
        for queue in (self._queue, *self._queues.values()):
            queue.batch_messages = SHARED_MESSAGES if is_shared else SLOTS

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
        """Stop, discard what is queued for sending, and close the sockets."""
        if self._closed:
            return
        self._dropped = self.dropped_packets()
        self._enter(DriverState.CLOSED)
        self._transmitter.discard()
        self._deferred = None
        self._poller.end()
        self._loop.remove_reader(self._timer.fd)
        if self._full is not None:
            self._loop.remove_writer(self._full.fileno())
        self._epoll.close()
        self._timer.close()
        for sock in self._paths:
            sock.close()

    @property
    def _closed(self) -> bool:
        return self._state is DriverState.CLOSED

    def dropped_packets(self) -> int:
        """Return the datagrams that the kernel dropped because a socket's buffer was full."""
        if self._closed:
            return self._dropped
        return sum(dropped_packets(sock) for sock in self._sockets.values())

    @property
    def allowance_exceeded(self) -> AllowanceExceeded:
        """What had to wait for the allowance; zeros without one."""
        incoming, outgoing = self._incoming, self._outgoing
        if incoming is None or outgoing is None:
            return AllowanceExceeded()
        packets = incoming.packets_exceeded + outgoing.packets_exceeded
        return AllowanceExceeded(incoming.bandwidth_exceeded, outgoing.bandwidth_exceeded, packets)

    def _socket(self, path: int) -> socket.socket:
        """Return a path's socket. A standby path's socket is opened on first use."""
        while path >= len(self._paths):
            try:
                sock = self._open_socket()
            except OSError:  # no descriptor or port is left: share the socket of another path
                return self._paths[path % len(self._paths)]
            self._paths.append(sock)
            self._sockets[sock.fileno()] = sock
            self._epoll.register(sock.fileno(), select.EPOLLIN)
        return self._paths[path]

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

    def _poll_sockets(self) -> list[tuple[int, int]]:
        """Return the readable sockets. In a shared turn one at a time: the kernel puts it behind the others."""
        ready = self._epoll.poll(0, 1 if self._is_shared else -1)
        if self._unread:
            ready.sort(key=lambda item: item[0] not in self._unread)
            self._unread.clear()
        return ready

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
        self._this_turn = Turn()
        if self._incoming is not None:
            read = read and not self._may_not_read(self._incoming)
        try:
            received = read and self._read()
            self._deliver()
            answered = self._state is DriverState.YIELDED or self._has_replied()
            yields = received and not answered and self._has_answers()
            if yields:
                self._wake_last()  # a turn before the application's would send the ACKs first
            elif self._finish_turn(read=read, answered=answered):
                self.wake()
        except Exception as error:
            self.close()
            self._on_failure(error)
            raise
        if not self._closed:  # an event's handler may have closed the driver
            self._moderator.carry(self._this_turn.read_bytes + self._this_turn.sent_bytes)
            self._enter(self._state_after(read=read, received=received, yields=yields))
            deadlines = [at for at in (self._core.poll_timeout(), self._coalesce_until) if at is not None]
            if self._incoming is not None:
                if self._state is DriverState.LIMITED:  # timeouts are left alone until then
                    deadlines = [self._incoming.ready_at]
                if self._send_at is not None and not self._blocked():
                    deadlines.append(self._send_at)
            self._timer.arm(min(deadlines, default=None))

    def _finish_turn(self, *, read: bool, answered: bool) -> bool:
        """Send the reply if `answered`; process ACKs and timeouts, deliver, send; return whether more is to be sent.

        ACKs are processed before timeouts, or acknowledged data is declared lost. So timeouts are left alone in a turn
        that neither read nor was `answered`: they make the timer fire, and the timer's turn reads.
        """
        more = answered and (self._send_turn(data_only=True) or self._send_turn(data_only=False))
        self._process_control()
        if read or answered:
            self._core.handle_timeout(time.monotonic())
        self._deliver()
        self._wake_due = False  # what was posted until now goes out here, or is held back by what wakes the driver
        more = more or self._send_turn(data_only=False)
        self._deliver()
        return more

    def after_delivery(self, callback: Callable[[], bool]) -> None:
        """Call back once in this turn, when all that has arrived is delivered; outside of a turn: in the next one.

        It returns whether it has posted a reply, which then goes out before the acknowledgements.
        """
        self._after_delivery[callback] = None

    def _has_replied(self) -> bool:
        """Make the calls of `after_delivery`; return whether the turn is one of a request-response exchange."""
        if not self._after_delivery:
            return False
        callbacks, self._after_delivery = self._after_delivery, {}
        has_posted = False
        for callback in callbacks:
            has_posted |= callback()
        return has_posted and self._this_turn.read_bytes < BULK_BYTES

    # -- receiving ----------------------------------------------------------------------------------------------

    def _read(self) -> bool:
        """Read every readable socket; return whether anything was received."""
        received = False
        self.turns += 1
        ready, self._ready = self._ready, None
        until = time.monotonic() + SHARED_TURN_S if self._is_shared else 0.0
        while ready := self._poll_sockets() if ready is None else ready:
            for fd, _ in ready:
                if self._unread or (self._incoming is not None and self._may_not_read(self._incoming)):
                    self._unread.add(fd)
                else:
                    received |= self._read_socket(self._sockets[fd])
            if time.monotonic() >= until or self._unread:
                break
            ready = None
        if received and not self._is_shared and self._incoming is None:
            self._read_rest()
        if received:
            now = time.monotonic()
            self._since_s, self._read_at = now - self._read_at, now
        return received

    def _read_rest(self) -> None:
        """Read the rest of a message that arrives at a high rate (rule 7)."""
        turn, now = self._this_turn, time.monotonic()
        until = now + REST_S
        while now < until and FAST_BYTES <= turn.read_bytes < TURN_BYTES and self._core.awaits_rest:
            before = turn.read_bytes
            for fd, _ in self._poll_sockets():
                self._read_socket(self._sockets[fd])
            now = time.monotonic()
            if turn.read_bytes > before:
                until = now + REST_S

    def _expects_more_data(self) -> bool:
        """Whether what this turn read is part of a stream."""
        turn = self._this_turn
        return turn.read_bytes >= BULK_BYTES and (turn.messages > 1 or self._core.expects_more_data)

    def _has_answers(self) -> bool:
        """Whether the application may reply to a message of a request-response exchange: short, or alone.

        Not after the end of a peer: the application may react to it by closing this endpoint at once.
        """
        turn = self._this_turn
        if turn.messages == 0 or turn.ended or self._since_s >= max(self._adaptive_poll_s, REPLIES_WITHIN_S):
            return False
        return turn.read_bytes < BULK_BYTES or (turn.messages == 1 and not self._core.expects_more_data)

    def _state_after(self, *, read: bool, received: bool, yields: bool) -> DriverState:
        """Return the state after a turn, depending on what it carried and when the one before was."""
        if self._incoming is not None and not yields and self._may_not_read(self._incoming):
            return DriverState.LIMITED
        if not read:  # it only sent
            return DriverState.COALESCING if self._state is DriverState.COALESCING else DriverState.WAITING
        if received and not self._busy_poll:
            self._moderator.on_read(since_s=self._since_s)
            if self._expects_more_data() or self._this_turn.sent_bytes >= BULK_BYTES:
                if pause_s := self._moderator.pause_s:
                    self._poller.suppress(self._read_at)
                    self._coalesce_until = self._read_at + pause_s
                    return DriverState.COALESCING
                if self._since_s < BUSY_S:
                    self._poller.extend(self._read_at, window_s=POLL_S)
            elif self._this_turn.events and self._since_s < self._adaptive_poll_s:
                self._poller.extend(self._read_at, window_s=self._adaptive_poll_s)
        return DriverState.YIELDED if yields else DriverState.WAITING

    def _enter(self, state: DriverState) -> None:
        """Change the state, and have the event loop poll the sockets or not."""
        if state is not DriverState.COALESCING:
            self._coalesce_until = None
        if not self._busy_poll and POLLS_SOCKETS[state] is not POLLS_SOCKETS[self._state]:
            if POLLS_SOCKETS[state]:
                self._loop.add_reader(self._epoll.fileno(), self._on_readable)
            else:
                self._loop.remove_reader(self._epoll.fileno())
        self._state = state

    def _read_socket(self, sock: socket.socket) -> bool:
        """Read up to `BATCHES_PER_TURN` batches from a socket; return whether anything was received."""
        received = False
        queue = self._queues.get(sock.fileno(), self._queue)
        batches = 1 if self._is_shared else BATCHES_PER_TURN
        if self._incoming is not None:  # more of them where they are short
            batches *= (SHARED_MESSAGES if self._is_shared else SLOTS) // self._allowed_messages(self._incoming)
        for _ in range(batches):
            if self._incoming is not None:
                queue.batch_messages = self._allowed_messages(self._incoming)
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
            if self._incoming is not None:
                self._charge_batch(batch, self._incoming, now=now)
            self._process_control()  # those of earlier batches, to keep the order of arrival
            controls = batch.controls
            if batch.datagrams and controls:  # deferred, so that the application can reply first
                self._controls += controls
                controls = []
            result = self._core.handle_packets(
                batch.datagrams, controls=controls, no_memory=batch.no_memory, low_region=batch.low_region, now=now
            )
            queue.commit(batch, result)
            if not batch.full or (self._incoming is not None and self._may_not_read(self._incoming)):
                break
        return received

    def _may_not_read(self, incoming: DirectionLimit) -> bool:
        """Whether the incoming allowance is exhausted."""
        return time.monotonic() < incoming.ready_at

    def _allowed_messages(self, incoming: DirectionLimit) -> int:
        """Return how many messages (segment trains) the next batch may have."""
        most = SHARED_MESSAGES if self._is_shared else SLOTS
        room = incoming.room(time.monotonic(), item_bytes=SUPER_BYTES, item_packets=MAX_TRAIN_PACKETS)
        return min(most, max(room, 1))

    def _charge_batch(self, batch: RxBatch, incoming: DirectionLimit, *, now: float) -> None:
        """Charge what was read; count what had to wait for the allowance, and mark what waited for long."""
        header_bytes = self._overhead_bytes - HEADER_BYTES
        packets, size_bytes, waited = len(batch.controls), header_bytes * len(batch.controls), 0
        for data, _, received_at in batch.controls:
            size_bytes += len(data)
            waited += received_at < incoming.ready_at
        for datagram in batch.datagrams:
            packets += datagram.count
            size_bytes += datagram.payload_bytes + datagram.count * self._overhead_bytes
            if datagram.received_at < incoming.ready_at:
                waited += datagram.count
                datagram.ecn_ce = datagram.ecn_ce or now - datagram.received_at > MARK_AFTER_S
        if waited:
            incoming.count_waited(waited)
        incoming.charge(size_bytes, packets=packets, now=now)

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

    def _deliver(self) -> None:
        checked = None  # the last peer whose completed requests were removed from the transmitter
        while (event := self._core.poll_event()) is not None:
            if isinstance(event, Completion) and event.status is not Status.OK:
                self.drop_unsent()
            elif self._full is not None and isinstance(event, Completion | BatchCompletion) and event.peer != checked:
                checked = event.peer
                self._drop_acknowledged(checked)
            if isinstance(event, MessageReceived | WriteReceived):
                self._this_turn.messages += 1
            elif isinstance(event, MessagesReceived):
                self._this_turn.messages += event.count
            elif isinstance(event, PeerEnded):
                self._this_turn.ended = True
            self._this_turn.events += 1
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

    def _send_turn(self, *, data_only: bool) -> bool:
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
            if self._outgoing is None:
                out = self._deferred or self._core.poll_transmit(now, data_only=data_only)
            else:
                out = self._deferred or self._poll_allowed(self._outgoing, data_only=data_only, now=now)
            self._deferred = None
            if out is None:
                break
            if isinstance(out, Datagram):
                sent_bytes += BURST_BYTES
                self._send_datagram(out)
                continue
            sent_bytes += BURST_BYTES + out.carried_bytes
            self._this_turn.sent_bytes += out.payload_bytes
            if not self._transmitter.has_room_for(out):
                self._transmit()
                if self._blocked():
                    self._deferred = out
                    return False
            self._transmitter.add(out)
        self._transmit()
        return out is not None and not self._blocked()

    def _poll_allowed(self, outgoing: DirectionLimit, *, data_only: bool, now: float) -> Burst | Datagram | None:
        """Return the next thing that the core sends within the outgoing allowance, and charge it."""
        room = outgoing.room(now, item_bytes=self._packet_bytes)
        out = self._core.poll_transmit(now, data_only=data_only, most_packets=min(room, MAX_BURST_PACKETS))
        if out is None:
            self._is_behind = self._core.holds_data
            self._send_at = outgoing.ready_at if self._is_behind else None
        elif isinstance(out, Datagram):
            size_bytes = len(out.data) + self._overhead_bytes - HEADER_BYTES
            outgoing.charge(size_bytes, packets=1, now=now)
        else:
            if self._is_behind:
                outgoing.count_waited(out.count)
            outgoing.charge(out.carried_bytes + out.count * self._overhead_bytes, packets=out.count, now=now)
        return out

    def _blocked(self) -> bool:
        """Whether a socket is full; nothing is sent until it is writable."""
        return self._full is not None

    def _transmit(self) -> None:
        if (port := self._transmitter.port) is None:
            return
        sock = self._socket(port)
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
            except OSError:  # perhaps an ICMP error about an earlier datagram: see `tx`
                self._icmp(sock)
            else:
                break
        # A control packet that cannot be sent is lost: each one is repeated, or superseded by a later one.
