"""What the protocol core reports to its owner: events (`poll_event`), and what is to be done with received memory.

Most are named tuples, since several come with every message and a frozen dataclass takes ten times as long to make. The
events of batches are dataclasses: `count` is a method of tuples.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final, NamedTuple

from srd.proto.wire.data import Address
from srd.proto.wire.status import Status

REGION_SHIFT: Final = 48
"""Bits of a region offset below the number of the region: an owner of several regions numbers them from 0."""
OFFSET_MASK: Final = (1 << REGION_SHIFT) - 1
"""Those bits."""


class Extent(NamedTuple):
    """A contiguous piece of a message, and where it landed."""

    offset: int
    """In the message, bytes."""
    region_offset: int
    """In the receive region, bytes; the region's number in the bits from REGION_SHIFT on."""
    length: int


class PeerOpened(NamedTuple):
    """The handshake is complete. `incoming`: the other end opened the peer."""

    peer: int
    address: Address
    incoming: bool


class PeerEnded(NamedTuple):
    """The peer has ended; no event follows for it. Every open request was completed before, with a status."""

    peer: int
    status: Status
    """OK: closed in an orderly way by either end."""
    reason: str
    released: tuple[Extent, ...]
    """Pieces of messages that will never be complete: their memory may be reused."""


class MessageReceived(NamedTuple):
    """All of a message has landed."""

    peer: int
    message: int
    length: int
    immediate: int | None
    """The sender's immediate; None: it gave none."""
    extents: tuple[Extent, ...]
    """In order of their offset; together they are the message."""
    key: int = 0
    """The sender's `WorkRequest.key`."""


@dataclass(frozen=True, slots=True)
class MessagesReceived:
    """Messages of one packet each that arrived together, numbered consecutively."""

    peer: int
    message: int
    """Number of the first."""
    count: int
    length: int
    """Of each."""
    immediate: int | None
    """The immediate of all of them; None: there is none."""
    region_offset: int
    """Where the first landed in the receive region, bytes; the others follow contiguously."""
    key: int = 0
    """The key of all of them."""

    @property
    def extent(self) -> Extent:
        """The memory of all of them, as one piece."""
        return Extent(0, self.region_offset, self.count * self.length)


class MessageAborted(NamedTuple):
    """A message was aborted by its sender or discarded here: the memory of its pieces may be reused."""

    peer: int
    released: tuple[Extent, ...]
    key: int = 0
    length: int = 0
    """Of the whole message."""
    opcode: int = 0
    """An `Opcode`: SEND or WRITE."""


class WriteReceived(NamedTuple):
    """All of a write with immediate has been placed. EFA calls it unsolicited: it consumes no receive buffer."""

    peer: int
    length: int
    immediate: int
    key: int = 0


class TargetCopy(NamedTuple):
    """An instruction: copy what landed in the receive region to registered memory."""

    target: int
    """Destination, in the terms of the `Memory` that the core was given."""
    region_offset: int
    """Source in the receive region, bytes."""
    length: int


class ReceiveResult:
    """What the owner of the memory has to do with a batch that the core has processed, before it receives the next.

    `kept`: pieces that hold new data, to be kept until their message is released or aborted, or the peer ends; the rest
    of the batch's memory may be reused. `copies`: to be carried out at once, as the events that follow rely on them.
    `refused_packets`: data packets refused by admission control.
    """

    def __init__(self) -> None:  # no dataclass, whose constructor is not compiled: there is one of these a turn
        self.kept: list[Extent] = []
        self.copies: list[TargetCopy] = []
        self.refused_packets = 0


class Completion(NamedTuple):
    """A work request has ended."""

    peer: int
    request: int
    status: Status


@dataclass(frozen=True, slots=True)
class BatchCompletion:
    """Work requests of a batch have succeeded: `count` from `request` on."""

    peer: int
    request: int
    count: int


Event = (
    PeerOpened
    | PeerEnded
    | MessageReceived
    | MessagesReceived
    | MessageAborted
    | WriteReceived
    | Completion
    | BatchCompletion
)
EventQueue = deque[Event]
"""The events of all peers of an endpoint, in order: each part of a peer appends what has happened in it."""
