# ruff: noqa: ARG002 - some arguments matter to a batch alone
"""What is sent: a message of any length, or a batch, many small messages as one.

The messages of a batch have one length, a packet at most, and consecutive numbers. What is sent are packets of single
messages, so the other end need not know of batches. The headers of a burst of them differ by a constant step, as those
of a long message do, so both ends process them together (see `wire.data`). Each message is acknowledged, and completes,
by itself.

Both are cut into packets, which are counted: the queue, the window and the sender use these counts, and ask what
differs of the `OutgoingMessage` or `OutgoingBatch`. A RESPONSE is a message, too, without a work request.
"""

from __future__ import annotations

import math
from typing import Any, Final

from srd.proto.base.seqset import mask, ranges
from srd.proto.events import BatchCompletion, Completion, EventQueue
from srd.proto.outgoing.flow_control import Credit
from srd.proto.wire.data import (
    HEADER_BYTES,
    IMMEDIATE,
    MAX_BURST_PACKETS,
    MAX_TRAIN_PACKETS,
    SMALL_BYTES,
    Lanes,
    Opcode,
    takes_credit,
)
from srd.proto.wire.status import Status
from srd.proto.work_request import BatchRequest, WorkRequest

_SEND: Final = int(Opcode.SEND)  # plain integers compare faster than an enum's members
_WRITE: Final = int(Opcode.WRITE)
_READ: Final = int(Opcode.READ)
_RESPONSE: Final = int(Opcode.RESPONSE)


class OutgoingMessage:
    """A message to be sent, as its work request describes it."""

    wr: WorkRequest
    number: int
    segment_bytes: int
    """Payload of each packet but the last."""
    count: int = 1
    """Messages of a batch, which have consecutive numbers from `number` on."""
    opcode: int
    immediate: int
    """As its packets give it. A write without one carries its start: see "Registered memory" in PROTOCOL.md."""
    flags: int
    """As its packets give them: the opcode, and IMMEDIATE."""
    needs_credit: bool
    """Whether it takes one message of the responder's credit: a SEND, or a WRITE with immediate."""
    credit_bytes: int
    """Bytes that each message takes of the responder's memory for messages."""
    carried_bytes: int
    """Payload in all: a READ carries none, whatever length it requests."""
    packetized: int = 0
    """Packets that were assigned their PSNs."""
    left: int
    """Packets that were not, and will be."""
    unacknowledged: int = 0
    """Packets that are packetized and not acknowledged."""
    end_psn: int = 0
    """PSN after its last that is packetized."""
    ended: bool = False
    """Whether its request has completed."""
    aborted: bool = False
    """Whether it was aborted: packets of it that are sent from now on have the flag ABORTED."""
    reason: int = 0
    """Aborted: the status that it was aborted with."""
    refused: bool = False
    """Whether it was aborted because the responder refused it: its missing packets had arrived."""
    rnr_count: int = 0
    """The peer's count of RNRs when it was posted (see `outgoing.flow_control`)."""
    deadline_at: float = math.inf

    def __init__(self, wr: WorkRequest, number: int, *, segment_bytes: int) -> None:
        self.wr, self.number, self.segment_bytes = wr, number, segment_bytes
        self.opcode = self.flags = int(wr.opcode)
        if wr.immediate is not None:
            self.immediate, self.flags = wr.immediate, self.opcode | IMMEDIATE
        else:
            self.immediate = wr.offset & 0xFFFFFFFF if self.opcode == _WRITE else 0
        self.needs_credit = takes_credit(self.flags)
        self.credit_bytes = wr.length if self.opcode == _SEND else 0
        self.carried_bytes = 0 if self.opcode == _READ else wr.length
        self.left = max(-(-self.carried_bytes // segment_bytes), 1)

    @property
    def is_partial(self) -> bool:
        """Whether a message has begun and is not wholly packetized: it has its credit, and its abort needs a PSN."""
        return self.packetized > 0 and self.left > 0

    @property
    def takes_ack(self) -> bool:
        """Whether it is a send of one packet with room for an ack."""
        return not self.opcode and self.wr.length < self.segment_bytes

    @property
    def packet_bytes(self) -> int:
        """Header and payload of each packet that is packetized next but its last."""
        return HEADER_BYTES + min(self.carried_bytes - self.packetized * self.segment_bytes, self.segment_bytes)

    @property
    def left_bytes(self) -> int:
        """What is not packetized yet, with headers."""
        return self.carried_bytes - self.packetized * self.segment_bytes + self.left * HEADER_BYTES

    @property
    def resent_singly(self) -> bool:
        """Whether its packets are sent again one by one."""
        return False

    def covered(self, credit: Credit) -> int:
        """Return how many of the packets that are left the responder's credit covers."""
        is_covered = self.packetized or not self.needs_credit or credit.covered(self.credit_bytes)
        return self.left if is_covered else 0

    def content(self, index: int, *, count: int) -> tuple[int, int, int, int, int, Lanes | None]:
        """Return what `count` packets from the one of this index on carry.

        The result is the number of the (first) message, the offset in it, where the payload starts, its bytes in all
        and in each packet, and, for a batch, the payload address of each message.
        """
        offset = index * self.segment_bytes
        payload_bytes = min(count * self.segment_bytes, self.carried_bytes - offset)
        return self.number, offset, self.wr.payload_offset + offset, payload_bytes, self.segment_bytes, None

    def full(self, index: int, *, count: int, payload_bytes: int) -> int:
        """Return how many of these packets carry `payload_bytes`: its last one may be shorter."""
        return min(count, (self.carried_bytes - index * self.segment_bytes) // payload_bytes)

    def abort_reason(self, index: int) -> int | None:
        """Return why the message of this packet was aborted; None: it was not."""
        return self.reason if self.aborted else None

    def refused_of(self, missing: int, *, index: int) -> int:
        """Return which of the missing packets, as bits from that index on, had arrived and were refused."""
        return missing if self.refused else 0

    def end_psn_at(self, psn: int) -> int:
        """Return the PSN after the last of the message that this PSN belongs to."""
        return self.end_psn

    def on_acked(self, index: int, *, bits: int) -> bool:
        """Note that packets were acknowledged, as bits from that index on; return whether anything completes."""
        self.unacknowledged -= bits.bit_count()
        return not self.unacknowledged and not self.left

    def refuse(self, number: int, *, status: Status) -> bool:
        """Note that the responder refused the message of this number; return whether that ends all of this."""
        self.refused = True
        return True

    def complete(self, peer: int, *, events: EventQueue) -> bool:
        """Report what has completed since the last call; return whether that is all of it."""
        if self.opcode != _RESPONSE:
            events.append(Completion(peer, self.wr.request, Status.OK))
        return True

    @property
    def open_requests(self) -> list[int]:
        """The caller's numbers of those of its requests that have not ended."""
        return [] if self.opcode == _RESPONSE else [self.wr.request]

    def end(self) -> None:
        """Note that its request has ended."""
        self.ended = True


class OutgoingBatch(OutgoingMessage):
    """The messages of a batch, a packet each, by their index in it. They end one by one."""

    payload_addresses: Lanes
    """Where each one's payload starts in the sender's region."""
    owner: Any
    """Kept alive until all have ended, and not until the records of sent packets go; None after that."""

    def __init__(self, batch: BatchRequest, number: int) -> None:
        wr = WorkRequest(batch.first_request, batch.length, immediate=batch.immediate, key=batch.key)
        super().__init__(wr, number, segment_bytes=batch.length or 1)
        self.payload_addresses = batch.payload_addresses
        self.owner = batch.owner
        self.segment_bytes = batch.length
        self.left = self.count = len(batch.payload_addresses)
        self.carried_bytes = self.count * batch.length
        self._ended = 0  # bit i: message i has completed
        self._fresh: list[tuple[int, int]] = []  # ranges (first, count) that were acknowledged since `complete`
        self._refused: dict[int, Status] = {}  # their packets are sent again as ABORTED
        self._refused_now: list[int] = []  # those since `complete`

    @property
    def is_partial(self) -> bool:
        """It is packetized in whole messages."""
        return False

    @property
    def resent_singly(self) -> bool:
        """Each that was aborted carries its own end PSN."""
        return self.aborted or bool(self._refused)

    def covered(self, credit: Credit) -> int:
        """Each takes credit of its own."""
        return min(self.left, credit.covered(self.segment_bytes))

    def content(self, index: int, *, count: int) -> tuple[int, int, int, int, int, Lanes | None]:
        """Each is a message of its own."""
        size_bytes, addresses = self.segment_bytes, self.payload_addresses[index : index + count]
        return self.number + index, 0, int(addresses[0]), count * size_bytes, size_bytes, addresses

    def abort_reason(self, index: int) -> int | None:
        """Each may be refused by itself."""
        return self.reason if self.aborted else self._refused.get(index)

    def refused_of(self, missing: int, *, index: int) -> int:
        """Each may be refused by itself."""
        if not self._refused:
            return 0
        return missing & sum(1 << bit for bit in range(missing.bit_length()) if index + bit in self._refused)

    def end_psn_at(self, psn: int) -> int:
        """Each has one PSN."""
        return psn + 1

    def on_acked(self, index: int, *, bits: int) -> bool:
        """Each completes by itself. The ack of one that was refused is that of its abort."""
        self.unacknowledged -= bits.bit_count()
        new = bits & ~(self._ended >> index)
        self._ended |= bits << index
        self._fresh += [(index + skip, count) for skip, count in ranges(new)]
        return True

    def refuse(self, number: int, *, status: Status) -> bool:
        """End one message, unless it has ended or was not sent."""
        index = number - self.number
        if index < self.packetized and not self._ended >> index & 1:
            self._ended |= 1 << index
            self._refused[index] = status
            self._refused_now.append(index)
        return False

    def complete(self, peer: int, *, events: EventQueue) -> bool:
        """Report the messages that were acknowledged or refused since the last call; return whether all have ended."""
        for index, count in self._fresh:
            events.append(BatchCompletion(peer, self.wr.request + index, count))
        for index in self._refused_now:
            events.append(Completion(peer, self.wr.request + index, self._refused[index]))
        self._fresh, self._refused_now = [], []
        return self._ended == mask(self.count)

    @property
    def open_requests(self) -> list[int]:
        """The caller's numbers of the messages that have not ended."""
        left = ranges(mask(self.count) & ~self._ended)
        return [self.wr.request + index for first, count in left for index in range(first, first + count)]

    def end(self) -> None:
        """Free what it keeps alive."""
        self.ended, self.owner = True, None


def max_packets(limit: int, packet_bytes: int, datagram_bytes: int) -> int:
    """Return how many packets of this size one burst may have: the bytes of `limit` full-size datagrams at most."""
    most = min(limit * datagram_bytes // packet_bytes, MAX_BURST_PACKETS)
    if packet_bytes < min(SMALL_BYTES, datagram_bytes):
        most = min(most, datagram_bytes // packet_bytes, MAX_TRAIN_PACKETS)
    return most
