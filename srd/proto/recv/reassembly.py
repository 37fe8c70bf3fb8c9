"""Incoming messages: which parts have landed."""

from __future__ import annotations

from typing import Final

from srd.proto.base.seqset import SequenceSet, mask, ranges
from srd.proto.events import Extent
from srd.proto.wire.data import ABORTED, IMMEDIATE, OPCODE_BITS, Opcode, ReceivedBurst
from srd.proto.wire.status import Status

_SEND: Final = int(Opcode.SEND)


class Reassembly:
    """A message of which some has landed, or that is refused here."""

    def __init__(self, burst: ReceivedBurst, *, now: float = 0.0, status: Status = Status.REMOTE_ERROR_RNR) -> None:
        """Begin the message of a burst. `status`: what its sender is told if it is refused or discarded here."""
        self.length, self.flags, self.immediate = burst.length, burst.flags & ~ABORTED, burst.immediate
        self.key = burst.key  # a send's destination, or the registration
        self.status = status
        self.began_at = self.landed_at = now  # when its first part landed, and its last so far
        self.landed_bytes = 0
        self.extents: list[Extent] = []  # of a send; data for registered memory is copied and leaves none
        # Of an answer to a read: which packets have landed, by their place in it. Bytes alone do not show that all of
        # it has: its sender may give one part twice, under two PSNs.
        self._packets: SequenceSet | None = None

    def cover(self, parts: list[Extent], *, segment_bytes: int) -> bool:
        """Note which packets of an answer have landed, by its new parts; False: one had before."""
        if self._packets is None:
            self._packets = SequenceSet()
        for part in parts:
            count = -(-part.length // segment_bytes)
            if self._packets.insert(part.offset // segment_bytes, count=count) != mask(count):
                return False
        return True

    def landed_ranges(self) -> bool:
        """Sort the extents; return whether they are the whole message, without gap or overlap."""
        if len(self.extents) > 1:
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
    if new == mask(burst.count) and burst.payload_bytes:  # the common case
        return [Extent(burst.offset, burst.payload_offset, burst.payload_bytes)]
    extents = []
    for first, count in ranges(new):
        start = first * burst.segment_bytes
        end = min((first + count) * burst.segment_bytes, burst.payload_bytes)
        if end > start:
            extents.append(Extent(burst.offset + start, burst.payload_offset + start, end - start))
    return extents
