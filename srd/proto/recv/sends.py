"""The sends of a peer, from received bursts to events: who takes them, reassembly, what is refused.

1. An endpoint of an application takes every send for which it has granted credit. Where the owner has an `Inbox` (an
   emulated network card), each send is admitted before any packet of it is acknowledged.
2. A send that was refused stays refused until its sender turns it ABORTED, even if it could be taken by now: its sender
   has been told, and may send the same again as another message. So no send is delivered twice.
3. The messages of a batch are admitted together. If not all are taken, each is processed by itself.
"""

from __future__ import annotations

from srd.proto.events import EventQueue, Extent, MessageReceived
from srd.proto.memory import Inbox
from srd.proto.rdma import Rdma
from srd.proto.recv.receiver import Receiver
from srd.proto.send.batch import received
from srd.proto.wire.data import ReceivedBurst, single_packet
from srd.proto.wire.status import Status


class Sends:
    """`handle` received bursts of sends."""

    __slots__ = ("_events", "_inbox", "_peer", "_rdma", "_receiver")

    def __init__(
        self,
        peer: int,
        *,
        receiver: Receiver,
        rdma: Rdma,
        inbox: Inbox | None,
        events: EventQueue,
    ) -> None:
        self._peer = peer
        self._receiver = receiver
        self._rdma = rdma
        self._inbox = inbox
        self._events = events

    def handle(self, burst: ReceivedBurst, *, now: float) -> list[Extent]:
        """Process a received burst; return the pieces of memory that are kept."""
        if not burst.batch:
            return self._handle_message(burst, now=now)
        if self._inbox is not None and not self._takes_batch(self._inbox, burst):
            kept = []
            for index in range(burst.count):
                kept += self._handle_message(single_packet(burst, index), now=now)
            return kept
        batches = received(burst, self._receiver.accept_batch(burst, now=now), peer=self._peer)
        self._events.extend(batches)
        return [batch.extent for batch in batches]

    def _handle_message(self, burst: ReceivedBurst, *, now: float) -> list[Extent]:
        if (refused := self._receiver.refusal(burst.message)) is not None:
            self._rdma.refuse(burst, status=refused, now=now)
            return []
        if self._inbox is not None and self._receiver.begins(burst, offset=burst.offset):
            status = self._inbox.admit(burst.key, peer=self._peer, length=burst.length, count=1)
            if status is not None:
                self._receiver.refuse_message(burst, status=status)
                self._rdma.refuse(burst, status=status, now=now)
                return []
        kept, message = self._receiver.accept(burst, now=now)
        if message is not None:
            extents = tuple(message.extents)
            self._events.append(
                MessageReceived(self._peer, burst.message, message.length, message.immediate_value, extents, burst.key)
            )
        return kept

    def _takes_batch(self, inbox: Inbox, burst: ReceivedBurst) -> bool:
        """Whether all new messages of a batch are taken; if not, none is."""
        if self._receiver.has_refused or burst.length > self._receiver.segment_bytes:
            return False
        count = self._receiver.unseen(burst).bit_count()
        if not count:
            return True  # duplicates only
        if count == 1:
            return False  # by itself, so that a refusal is remembered
        return inbox.admit(burst.key, peer=self._peer, length=burst.length, count=count) is None

    def refuse(self, burst: ReceivedBurst, *, status: Status, now: float) -> None:
        """Refuse a received burst."""
        parts = [single_packet(burst, index) for index in range(burst.count)] if burst.batch else [burst]
        for part in parts:
            self._rdma.refuse(part, status=status, now=now)
