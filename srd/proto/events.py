"""What the protocol core reports to its owner: events (`poll_event`), and what is to be done with received memory.

What comes with messages has a constructor of its own, which is compiled: those of named tuples are not, nor generated
ones, and take several times as long. What is rare is a named tuple.
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


@dataclass(init=False, slots=True)
class Extent:
    """A contiguous piece of a message, and where it landed."""

    offset: int
    """In the message, bytes."""
    region_offset: int
    """In the receive region, bytes; the region's number in the bits from REGION_SHIFT on."""
    length: int

    def __init__(self, offset: int, region_offset: int, length: int) -> None:
        self.offset = offset
        self.region_offset = region_offset
        self.length = length


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


@dataclass(init=False, slots=True)
class MessageReceived:
    """All of a message has landed."""

    peer: int
    message: int
    length: int
    immediate: int | None
    """The sender's immediate; None: it gave none."""
    extents: tuple[Extent, ...]
    """In order of their offset; together they are the message."""
    key: int
    """The sender's `WorkRequest.key`."""

    def __init__(
        self, peer: int, message: int, length: int, immediate: int | None, extents: tuple[Extent, ...], key: int = 0
    ) -> None:
        self.peer = peer
        self.message = message
        self.length = length
        self.immediate = immediate
        self.extents = extents
        self.key = key


@dataclass(init=False, slots=True)
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
    key: int
    """The key of all of them."""

    def __init__(
        self, peer: int, message: int, count: int, length: int, immediate: int | None, region_offset: int, key: int = 0
    ) -> None:
        self.peer = peer
        self.message = message
        self.count = count
        self.length = length
        self.immediate = immediate
        self.region_offset = region_offset
        self.key = key

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


@dataclass(init=False, slots=True)
class TargetCopy:
    """An instruction: copy what landed in the receive region to registered memory."""

    target: int
    """Destination, in the terms of the `Memory` that the core was given."""
    region_offset: int
    """Source in the receive region, bytes."""
    length: int

    def __init__(self, target: int, region_offset: int, length: int) -> None:
        self.target = target
        self.region_offset = region_offset
        self.length = length


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


@dataclass(init=False, slots=True)
class Completion:
    """A work request has ended."""

    peer: int
    request: int
    status: Status

    def __init__(self, peer: int, request: int, status: Status) -> None:
        self.peer = peer
        self.request = request
        self.status = status


@dataclass(init=False, slots=True)
class BatchCompletion:
    """Work requests of a batch have succeeded: `count` from `request` on."""

    peer: int
    request: int
    count: int

    def __init__(self, peer: int, request: int, count: int) -> None:
        self.peer = peer
        self.request = request
        self.count = count


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
