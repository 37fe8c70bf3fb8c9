"""The state kept for one remote endpoint: opening, sending and receiving halves, signs of life, closing.

States and what moves them:

    OPENING --accepted--> OPEN --close()--> DRAINING --all requests done--> CLOSING --CLOSED or retries spent--> ENDED
    any --Close, Reset, Refuse, silence--> ENDED, with every open request completed first

A peer that has fallen silent is asked for a sign of life (a probe) before it is given up, and is given up only after at
least three were left unanswered: an interpreter that was stopped for a second must not take the world for dead.
"""

from __future__ import annotations

from collections import deque
from enum import Enum, auto
from random import Random

from srd.proto.config import MAX_PATHS, ProtocolConfig
from srd.proto.control import Ack, Close, Datagram, Probe
from srd.proto.events import Completion, Event, Frag, MessageReceived, PeerEnded, PeerOpened
from srd.proto.handshake import Initiator
from srd.proto.path import Path
from srd.proto.receive import Receiver
from srd.proto.sender import Sender
from srd.proto.status import Status
from srd.proto.wire import Address, Burst, Run

CLOSE_ATTEMPTS = 5
"""CLOSE packets sent before the peer is taken for closed; each waits twice as long as the one before."""
PROBES_BEFORE_END = 3
"""Unanswered signs of life before a silent peer is given up."""


class PeerState(Enum):
    """How far a peer's life has come."""

    OPENING = auto()
    OPEN = auto()
    DRAINING = auto()
    CLOSING = auto()
    ENDED = auto()


class PeerCore:
    """One peer. Driven by `EndpointCore`, which finds it by its context id."""

    def __init__(
        self,
        number: int,
        *,
        config: ProtocolConfig,
        address: Address,
        own_context: int,
        rng: Random,
        now: float,
    ) -> None:
        self.number = number
        self.address = address
        self.own_context = own_context
        self.remote_context = 0
        self.datagram_bytes = 0
        self.state = PeerState.OPENING
        self.receiver = Receiver(config)
        self.sender: Sender | None = None
        self.initiator: Initiator | None = None
        self.events: deque[Event] = deque()
        self.ended: tuple[Status, str] | None = None  # how and why it is gone
        self._config = config
        self._rng = rng
        self._heard_at = now
        self._asked_at = now  # when it was last heard, or asked for a sign of life
        self._probes_unanswered = 0
        self._close_at = 0.0
        self._closes = 0

    # -- opening ------------------------------------------------------------------------------------------------

    def opened(
        self, *, remote_context: int, datagram_bytes: int, credit_bytes: int, max_message_bytes: int, now: float
    ) -> None:
        """Both ends know each other."""
        incoming = self.initiator is None
        self.initiator = None
        self.remote_context = remote_context
        self.datagram_bytes = datagram_bytes
        self.sender = Sender(
            self._config,
            address=self.address,
            context=remote_context,
            datagram_bytes=datagram_bytes,
            credit_bytes=credit_bytes,
            max_message_bytes=max_message_bytes,
            rng=self._rng,
        )
        self.state = PeerState.OPEN
        self.heard(now=now)
        self.events.append(PeerOpened(self.number, self.address, incoming))

    def heard(self, *, now: float) -> None:
        """Note a sign of life."""
        self._heard_at = self._asked_at = now
        self._probes_unanswered = 0

    # -- input --------------------------------------------------------------------------------------------------

    def handle_run(self, run: Run, *, now: float) -> list[Frag]:
        """Take data; return the pieces of memory that are kept."""
        self.heard(now=now)
        kept, message = self.receiver.take(run, now=now)
        if self.receiver.contradiction:
            self.end(Status.REMOTE_ERROR_ABORT, reason=self.receiver.contradiction)
        elif message is not None:
            frags = tuple(message.frags)
            self.events.append(MessageReceived(self.number, run.message, message.length, message.immediate, frags))
        return kept

    def handle_ack(self, ack: Ack, *, now: float, received_at: float) -> None:
        """Take an ack. Raises PacketError if it cannot be true."""
        if self.sender is None:
            return
        done = self.sender.handle_ack(ack, now=now, received_at=received_at)
        self.heard(now=now)
        self.events.extend(Completion(self.number, request, Status.OK) for request in done)

    def handle_probe(self, probe: Probe, *, address: Address, now: float, received_at: float) -> None:
        """Take a probe: the ack that it asks for is due."""
        self.heard(now=now)
        if probe.path >= MAX_PATHS:
            return
        self.receiver.hear(
            probe.path,
            path_sequence=probe.path_sequence,
            sent_us=probe.sent_us,
            address=address,
            received_at=received_at,
        ).packets += 1
        self.receiver.ack_at = now

    def end(self, status: Status, *, reason: str) -> None:
        """Complete what is open, in error, and be gone."""
        if self.state is PeerState.ENDED:
            return
        self.state = PeerState.ENDED
        self.ended = (status, reason)
        failed = Status.REMOTE_ERROR_ABORT if status is Status.OK else status
        for request in self.sender.requests if self.sender else []:
            self.events.append(Completion(self.number, request, failed))
        self.events.append(PeerEnded(self.number, status, reason, self.receiver.abandon()))

    def close(self, *, now: float) -> None:
        """Close in an orderly way, once every request is done; a peer that never opened ends at once."""
        if self.state is PeerState.OPENING:
            self.end(Status.FLUSHED, reason="closed before it was open")
        elif self.state is PeerState.OPEN:
            self.state = PeerState.DRAINING
            self._close_at = now

    # -- time ---------------------------------------------------------------------------------------------------

    def handle_timeout(self, *, now: float) -> None:
        """Do what is due."""
        if self.initiator is not None and now >= self.initiator.give_up_at:
            seconds = self._config.handshake_timeout_s
            self.end(Status.LOCAL_ERROR_UNREACH_REMOTE, reason=f"no answer within {seconds:g} s")
        if self.sender is None or self.state is PeerState.ENDED:
            return
        self.sender.handle_timeout(now=now)
        silent_s = now - self._heard_at
        asked = self._probes_unanswered >= PROBES_BEFORE_END and now >= self._ask_at()
        if asked and silent_s >= self._config.unresponsive_after_s and self.state is PeerState.CLOSING:
            self.end(Status.OK, reason="closed; the other end did not confirm")
        elif asked and silent_s >= self._config.unresponsive_after_s:
            self.end(Status.LOCAL_ERROR_UNRESP_REMOTE, reason=f"fell silent {silent_s:.1f} s ago")
        elif self.state is PeerState.CLOSING and self._closes >= CLOSE_ATTEMPTS and now >= self._close_at:
            self.end(Status.OK, reason="closed; the other end did not confirm")

    def poll_timeout(self, *, now: float) -> float | None:
        """When to look again, if nothing arrives before."""
        if self.initiator is not None:
            return self.initiator.wake_at
        if self.sender is None or self.state is PeerState.ENDED:
            return None
        deadlines = [self._ask_at()]
        if self.receiver.ack_at is not None:
            deadlines.append(self.receiver.ack_at)
        if (at := self.sender.poll_timeout(now=now)) is not None:
            deadlines.append(at)
        if self.state is PeerState.CLOSING or (self.state is PeerState.DRAINING and self.sender.idle):
            deadlines.append(self._close_at)
        return min(deadlines)

    def _ask_at(self) -> float:
        """When the peer is to be asked for a sign of life, or to be given up."""
        interval_s = self._config.probe_after_s
        if self.sender is not None and self.sender.blocked:
            # The grant that we wait for may have been lost: ask soon, then ever more slowly.
            interval_s = min(interval_s, 4 * self.sender.rtt_s * (1 << min(self._probes_unanswered, 16)))
        return self._asked_at + interval_s

    # -- output -------------------------------------------------------------------------------------------------

    def poll_control(self, *, now: float) -> Datagram | None:
        """Return the next control packet that is due."""
        if self.initiator is not None:
            hello = self.initiator.poll_hello(now=now)
            return Datagram(self.address, 0, hello) if hello else None
        if self.sender is None or self.state is PeerState.ENDED:
            return None
        if self.receiver.ack_at is not None and now >= self.receiver.ack_at:
            due = self.receiver.ack(context=self.remote_context, now=now, room_bytes=self.datagram_bytes)
            if due is not None:
                ack, address = due
                return Datagram(address, 0, ack.encode())
        if probed := self.sender.poll_probe(now=now):
            return self._probe(*probed, now=now)
        if now >= self._ask_at():
            self._probes_unanswered += 1
            self._asked_at = now
            return self._probe(*self.sender.probe_any(now=now), now=now)
        return self._poll_close(self.sender, now=now)

    def poll_burst(self, *, now: float) -> Burst | None:
        """Return the next burst of data."""
        if self.sender is None or self.state not in (PeerState.OPEN, PeerState.DRAINING):
            return None
        return self.sender.poll_burst(now=now)

    def _poll_close(self, sender: Sender, *, now: float) -> Datagram | None:
        if self.state is PeerState.DRAINING and sender.idle:
            self.state = PeerState.CLOSING
        if self.state is not PeerState.CLOSING or now < self._close_at or self._closes >= CLOSE_ATTEMPTS:
            return None
        self._close_at = now + max(2 * sender.rtt_s, self._config.min_rto_s) * (1 << self._closes)
        self._closes += 1
        path, _ = sender.probe_any(now=now)
        return Datagram(self.address, path.index, Close(self.remote_context).encode())

    def _probe(self, path: Path, sequence: int, *, now: float) -> Datagram:
        probe = Probe(self.remote_context, path.index, sequence, int(now * 1e6) & 0xFFFFFFFF)
        return Datagram(self.address, path.index, probe.encode())
