"""What was sent and not yet acknowledged: one record per burst, sets of packets as integers.

Rules.
1. A PSN always names the same content, unless its message is aborted: then it is ABORTED. `PsnRange` maps PSNs to a
   message and packets of it; a retransmission is a second `InflightBurst` of the same PSNs, on another path.
2. `Inflight.base` is the first PSN of the oldest PSN range that is not wholly acknowledged; bitmaps are relative to it.
3. The range of a PSN is found with integer operations alone, which is cheaper than a bisection: `_starts` has a bit at
   the first PSN of each range, so the highest set bit at or below a PSN's is that of its range.
"""

from __future__ import annotations

from dataclasses import dataclass

from srd.proto.base.errors import PacketError
from srd.proto.base.seqset import mask, trailing_ones
from srd.proto.outgoing.message import OutgoingMessage
from srd.proto.wire.data import HEADER_BYTES


@dataclass(init=False)
class PsnRange:
    """Consecutive PSNs that carry consecutive packets of a message."""

    first: int
    count: int
    message: OutgoingMessage
    index: int
    """Index of the first packet in the message."""
    packet_bytes: int
    """Header and payload of each packet but the message's last."""

    def __init__(self, first: int, count: int, message: OutgoingMessage, index: int, packet_bytes: int) -> None:
        self.first = first
        self.count = count
        self.message = message
        self.index = index
        self.packet_bytes = packet_bytes

    def full(self, first: int, *, count: int) -> int:
        """Return how many of `count` packets, from PSN `first` on, had `packet_bytes`: not ABORTED, nor a short end."""
        payload_bytes, index = self.packet_bytes - HEADER_BYTES, self.index + first - self.first
        if not payload_bytes or self.message.abort_reason(index) is not None:
            return 0
        return self.message.full(index, count=count, payload_bytes=payload_bytes)

    def refused(self, first: int, *, missing: int) -> int:
        """Return which of the missing packets, as bits from PSN `first` on, had arrived and were refused."""
        return self.message.refused_of(missing, index=self.index + first - self.first)


@dataclass(init=False)
class InflightBurst:
    """One burst on one path: the record that loss detection works on."""

    psns: PsnRange
    first: int
    count: int
    path_sequence: int
    sent_at: float

    def __init__(
        self,
        psns: PsnRange,
        first: int,
        count: int,
        path_sequence: int,
        sent_at: float,
    ) -> None:
        self.psns = psns
        self.first = first
        self.count = count
        self.path_sequence = path_sequence
        self.sent_at = sent_at

    @property
    def last_sequence(self) -> int:
        """Path sequence of the burst's last packet."""
        return self.path_sequence + self.count - 1

    def is_full(self, sequence: int) -> bool:
        """Whether its packet of this path sequence has the size of its PSN range's packets."""
        return sequence - self.path_sequence < self.psns.full(self.first, count=self.count)

    @property
    def bytes(self) -> int:
        """What it adds to the bytes in flight."""
        return self.count * self.psns.packet_bytes


@dataclass(slots=True)
class LostRange:
    """Packets to be sent again: `count` from PSN `first` on, of one PSN range."""

    psns: PsnRange
    first: int
    count: int
    path: int | None
    """Number of the path that lost them; None: they were never sent."""


class Inflight:
    """The window of sent PSNs: ranges are added at its end and acknowledged anywhere; `lost` ones are sent again."""

    __slots__ = ("_ranges", "_starts", "acknowledged", "base", "lost", "next_psn", "unsent")

    def __init__(self) -> None:
        self.base = 0
        self.next_psn = 0
        self.lost: list[LostRange] = []  # in the order of sending; what was acknowledged since is skipped
        self.unsent: tuple[int, ...] = ()  # PSNs of these that were never sent; few
        self.acknowledged = 0  # bit i: PSN base + i was acknowledged
        self._starts = 0  # bit i: PSN base + i is the first of a range
        self._ranges: dict[int, PsnRange] = {}  # by first PSN, in order

    def add(self, message: OutgoingMessage, *, count: int) -> PsnRange:
        """Assign PSNs to the next `count` packets of `message`."""
        psns = self._add(message, count=count, packet_bytes=message.packet_bytes)
        message.packetized += count
        message.left -= count
        return psns

    def add_abort(self, message: OutgoingMessage) -> None:
        """Assign a PSN to a packet without payload that aborts `message`, and goes before everything else."""
        psns = self._add(message, count=1, packet_bytes=HEADER_BYTES)
        self.lost.insert(0, LostRange(psns, psns.first, 1, None))
        self.unsent += (psns.first,)

    def on_abort_sent(self, psn: int) -> None:
        """Note that such a packet was sent: from now on it may be acknowledged."""
        self.unsent = tuple([unsent for unsent in self.unsent if unsent != psn])

    def _add(self, message: OutgoingMessage, *, count: int, packet_bytes: int) -> PsnRange:
        psns = PsnRange(self.next_psn, count, message, message.packetized, packet_bytes)
        self._starts |= 1 << (psns.first - self.base)
        self._ranges[psns.first] = psns
        self.next_psn += count
        message.end_psn = self.next_psn
        message.unacknowledged += count
        return psns

    def missing(self, first: int, *, count: int) -> int:
        """Return which of the PSNs are not acknowledged, as bits relative to `first`."""
        shift = first - self.base
        if shift < 0:  # a range leaves the window when all of it is acknowledged
            return mask(count) & ~mask(-shift) & ~(self.acknowledged << -shift)
        return mask(count) & ~(self.acknowledged >> shift)

    def acknowledge(self, cumulative: int, *, bitmap: int) -> tuple[int, int, list[OutgoingMessage]]:
        """Process a SACK; return newly acknowledged packets, their bytes, and the messages that it completes.

        A batch is among these messages as soon as some of its messages are acknowledged.

        Raises PacketError when it acknowledges what was never sent.
        """
        if cumulative + bitmap.bit_length() > self.next_psn:
            raise PacketError(f"an ack of PSN {cumulative + bitmap.bit_length() - 1}, when {self.next_psn} is next")
        for psn in self.unsent:
            if psn < cumulative or bitmap >> psn - cumulative & 1:
                raise PacketError(f"an ack of PSN {psn}, which was not sent yet")
        ahead = cumulative - self.base
        received = bitmap << ahead | mask(ahead) if ahead >= 0 else bitmap >> -ahead
        new = received & ~self.acknowledged
        self.acknowledged |= new
        packets, size_bytes, done = new.bit_count(), 0, []
        while new:
            lowest = (new & -new).bit_length() - 1
            start = (self._starts & mask(lowest + 1)).bit_length() - 1
            psns = self._ranges[self.base + start]
            range_mask = mask(psns.count) << start
            fresh = (new & range_mask) >> start
            count = fresh.bit_count()
            new &= ~range_mask
            size_bytes += count * psns.packet_bytes
            if psns.message.on_acked(psns.index, bits=fresh):
                done.append(psns.message)
        self._advance()
        return packets, size_bytes, done

    def _advance(self) -> None:
        """Remove the ranges at the window's beginning that are wholly acknowledged."""
        whole = trailing_ones(self.acknowledged)
        shift = 0
        while self.base + shift in self._ranges and shift + self._ranges[self.base + shift].count <= whole:
            shift += self._ranges.pop(self.base + shift).count
        if shift:
            self.base += shift
            self.acknowledged >>= shift
            self._starts >>= shift
            if not self._ranges:
                self._ranges.clear()  # an emptied dictionary keeps its table (see `base.lazy_deque`)
