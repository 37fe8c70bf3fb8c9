"""Many small messages as one work request, recorded once for all of them, as a burst is for its packets.

The messages of a batch have one length, a packet at most, and consecutive numbers. What is sent are packets of single
messages, so the other end need not know of batches. The headers of a burst of them differ by a constant step, as those
of a long message do, so both ends process them together (see `wire.data`). Each message is acknowledged, and completes,
by itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from srd.proto.seqset import mask, ranges
from srd.proto.wire.data import MAX_BURST_PACKETS, MAX_TRAIN_PACKETS, SMALL_BYTES, Lanes
from srd.proto.wire.status import Status


@dataclass(slots=True, eq=False)
class SendBatch:
    """The messages of a batch, by their index in it."""

    payload_addresses: Lanes
    """Where each one's payload starts in the sender's region."""
    owner: Any = None
    """Object that is kept alive until all messages have ended, such as an export of the memory. None: all have
    ended."""
    packetized: int = 0
    """Messages that were assigned their PSNs."""
    ended: int = 0
    """Bit i: message i has completed."""
    fresh: list[tuple[int, int]] = field(default_factory=list)
    """Ranges (first, count) that were acknowledged since `pop_completed`."""
    refused: dict[int, Status] = field(default_factory=dict)
    """Messages that the responder refused: their packets are sent again as ABORTED."""

    @property
    def count(self) -> int:
        """Number of messages."""
        return len(self.payload_addresses)

    def acknowledge(self, first: int, *, bits: int) -> None:
        """Note that messages were acknowledged, as bits from `first` on. Of one that was refused its abort was."""
        new = bits & ~(self.ended >> first)
        self.ended |= bits << first
        self.fresh += [(first + skip, count) for skip, count in ranges(new)]

    def refuse(self, index: int, *, status: Status) -> bool:
        """Note that the responder refused a message; return False if it had ended before."""
        if self.ended >> index & 1:
            return False
        self.ended |= 1 << index
        self.refused[index] = status
        return True

    def pop_completed(self) -> list[tuple[int, int]]:
        """Return the ranges that were acknowledged since the last call."""
        fresh, self.fresh = self.fresh, []
        return fresh

    def open(self) -> Iterator[int]:
        """Yield the messages that have not completed."""
        for first, count in ranges(mask(self.count) & ~self.ended):
            yield from range(first, first + count)


def max_packets(limit: int, packet_bytes: int, datagram_bytes: int) -> int:
    """Return how many packets of this size one burst may have: the bytes of `limit` full-size datagrams at most."""
    most = min(limit * datagram_bytes // packet_bytes, MAX_BURST_PACKETS)
    if packet_bytes < SMALL_BYTES:
        most = min(most, datagram_bytes // packet_bytes, MAX_TRAIN_PACKETS)
    return most
