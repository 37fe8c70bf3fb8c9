"""Shared by the tests of the send queue: a queue without a peer, and messages that were posted to it."""

from __future__ import annotations

from collections import deque

import numpy as np

from srd.proto.events import Event
from srd.proto.outgoing.flow_control import Credit
from srd.proto.outgoing.inflight import Inflight
from srd.proto.outgoing.message import OutgoingMessage
from srd.proto.send.queue import SendQueue
from srd.proto.wire.data import Opcode
from srd.proto.work_request import BatchRequest, WorkRequest

SEGMENT_BYTES = 1000


class Posted:
    """A send queue, with credit for everything unless told otherwise."""

    def __init__(self, credit: Credit | None = None, *, max_partial_flows: int = 64) -> None:
        self.events: deque[Event] = deque()
        self.credit = credit or Credit(1 << 30, granted_messages=1 << 20, retries=7)
        self.queue = SendQueue(
            3,
            inflight=Inflight(),
            credit=self.credit,
            events=self.events,
            segment_bytes=SEGMENT_BYTES,
            max_partial_flows=max_partial_flows,
        )

    def post(
        self, opcode: Opcode, *, length: int = 1000, flow: int = 0, immediate: int | None = None, key: int = 0
    ) -> OutgoingMessage:
        """Add a message; `request` is as its number. `key`: of this end's registration."""
        number = self.queue._next_message
        if opcode is Opcode.RESPONSE:
            self.queue.respond(0, payload_offset=0, length=length, key=key, flow=flow)
        else:
            self.queue.post(WorkRequest(number, length, opcode=opcode, immediate=immediate, local_key=key, flow=flow))
        return self.find(number)

    def post_batch(self, count: int, *, length: int = 10) -> OutgoingMessage:
        number = self.queue._next_message
        self.queue.post_batch(BatchRequest(number, np.zeros(count, np.uint64), length, owner=self))
        return self.find(number & 0xFFFFFFFF)

    def find(self, number: int) -> OutgoingMessage:
        message = self.queue.by_number(number)
        assert message is not None
        return message

    def packetize(self) -> OutgoingMessage:
        """Packetize one packet of the head."""
        head = self.queue.head()
        assert head is not None
        self.queue.packetize(head, count=1)
        return head

    def order(self, *, most: int = 100) -> list[OutgoingMessage]:
        """Packetize packet by packet until none may be sent; return the message of each."""
        found: list[OutgoingMessage] = []
        while self.queue.head() is not None and len(found) < most:
            found.append(self.packetize())
        return found
