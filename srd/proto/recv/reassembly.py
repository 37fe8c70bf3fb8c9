"""Incoming messages: which parts have landed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from srd.proto.events import Extent
from srd.proto.seqset import SequenceSet, mask, ranges
from srd.proto.wire.data import ABORTED, IMMEDIATE, OPCODE_BITS, Opcode, ReceivedBurst
from srd.proto.wire.status import Status

_SEND: Final = int(Opcode.SEND)


@dataclass(init=False)
class Reassembly:
    """A message of which some has landed."""

    length: int
    immediate: int
    began_at: float
    """When its first part landed."""
    landed_at: float
    """When a part of it landed last."""
    landed_bytes: int
    extents: list[Extent]
    """Of a send; data for registered memory is copied and leaves none."""
    flags: int
    key: int
    """As its packets give it: a send's destination, or the registration."""
    status: Status
    """If it was refused or discarded here: what its sender is told."""
    packets: SequenceSet | None
    """Of an answer to a read: which packets have landed, by their place in it. Bytes alone do not show that all of it
    has: its sender may give one part twice, under two PSNs."""

    def __init__(
        self,
        length: int,
        immediate: int,
        began_at: float = 0.0,
        landed_at: float = 0.0,
        landed_bytes: int = 0,
        extents: list[Extent] | None = None,
        flags: int = 0,
        key: int = 0,
        status: Status = Status.REMOTE_ERROR_RNR,
    ) -> None:
        self.length = length
        self.immediate = immediate
        self.began_at = began_at
        self.landed_at = landed_at
        self.landed_bytes = landed_bytes
        self.extents = [] if extents is None else extents
        self.flags = flags
        self.key = key
        self.status = status
        self.packets = None

    def cover(self, first: int, *, new: int) -> bool:
        """Note which packets of an answer have landed, as bits from its packet `first` on; False: one had before."""
        packets = self.packets = self.packets or SequenceSet()
        return all(packets.insert(first + skip, count=count) == mask(count) for skip, count in ranges(new))

    def landed_ranges(self) -> bool:
        """Sort the extents; return whether they are the whole message, without gap or overlap."""
        self.extents.sort(key=lambda extent: extent.offset)
        at = 0
        for extent in self.extents:
            if extent.offset != at:
                return False
            at += extent.length
        return at == self.length

    @property
    def credit_bytes(self) -> int:
        """What it takes of the memory for messages."""
        return self.length if self.flags & OPCODE_BITS == _SEND else 0

    @property
    def immediate_value(self) -> int | None:
        """The sender's immediate, if it gave one."""
        return self.immediate if self.flags & IMMEDIATE else None

    def conflicts_with(self, burst: ReceivedBurst) -> str:
        """Return how a received burst of the same message contradicts it; empty: not at all."""
        if burst.length != self.length:
            return f"message {burst.message} is announced with {burst.length} and {self.length} bytes"
        if burst.flags & ~ABORTED != self.flags:
            return f"message {burst.message} is announced with flags {burst.flags} and {self.flags}"
        if burst.key != self.key:
            return f"message {burst.message} is announced with two keys"
        return ""


def new_parts(burst: ReceivedBurst, *, new: int) -> list[Extent]:
    """Return the parts of a burst whose bits are set in `new` as pieces of memory; empty parts are left out."""
    extents = []
    for first, count in ranges(new):
        start = first * burst.segment_bytes
        end = min((first + count) * burst.segment_bytes, burst.payload_bytes)
        if end > start:
            extents.append(Extent(burst.offset + start, burst.payload_offset + start, end - start))
    return extents
