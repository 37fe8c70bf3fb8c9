"""Black holes: packets from some size on are lost, while shorter ones arrive (RFC 8899, section 4.3).

The MTU on the way has become less than what the handshake found, and no router says so. Probes and short packets are
answered, so that nothing times out. What shows it are losses in a row: packets of a size, and none as long delivered in
between. A delivered packet that is shorter says nothing of the others, and a short one may be lost by chance; so a lost
packet counts only if it is longer than all that were delivered since the row began.

A packet that was declared lost may only be late, and one that was sent before may be on its way: as soon as one is
reported its size passes, as by a probe of that size.

A path has a row of its own, and a peer has one over all paths: where no path carries the size it would take long to see
it on each. The peer's row must have several rounds, since an overflowing buffer loses any number of packets at a time.
A round counts only if what was sent after the loss of the one before was known is lost, too, and something that was
sent after its packets was answered: a host that was stopped, or a link that is down, loses short packets as well.
"""

from __future__ import annotations

import math
from typing import Final

MTU_SUSPECT_LOSSES: Final = 8
"""Packets lost in a row: by chance once in 10^8 at 10 % loss. RFC 8899 takes three probes, but full-size probes on all
paths would cost capacity."""
MTU_SUSPECT_ROUNDS: Final = 3
"""Rounds of these: as RFC 8899's three probes, of which each is sent when the loss of the one before is known."""
_ANY_BYTES: Final = 1 << 30
"""Longer than any packet."""


class SizeLosses:
    """A row of losses: `on_lost`, `on_delivered`; of a path also `on_gone`, `had`."""

    __slots__ = ("_delivered_bytes", "_least_bytes", "_sequences", "packets")

    def __init__(self) -> None:
        self.packets = 0
        """Lost in a row."""
        self._least_bytes = 0  # the shortest of them
        self._delivered_bytes = 0  # the longest packet that was delivered since, shorter than all of them
        self._sequences = range(0)  # path sequences of this size that are not in flight any more, the last in a row

    def on_lost(self, packets: int, *, size_bytes: int) -> bool:
        """Note that so many packets of this size (header and payload) were lost; return whether they count."""
        if size_bytes <= self._delivered_bytes:
            return False
        self._least_bytes = min(self._least_bytes, size_bytes) if self.packets else size_bytes
        self.packets += packets
        return True

    def on_gone(self, first: int, *, count: int) -> None:
        """Note path sequences of packets that count as lost, or were acknowledged, perhaps of another path."""
        begin = self._sequences.start if self._sequences.stop == first and len(self._sequences) else first
        self._sequences = range(begin, first + count)

    def counts(self, size_bytes: int) -> bool:
        """Whether a delivered packet of this size ends the row."""
        return size_bytes >= self._least_bytes

    def had(self, sequence: int) -> bool:
        """Whether this path sequence was one of these: that it was delivered shows that its size passes."""
        return sequence in self._sequences

    def on_delivered(self, size_bytes: int) -> None:
        """Note that a packet of this size was delivered."""
        if self.counts(size_bytes):
            self.reset()
        else:
            self._delivered_bytes = max(self._delivered_bytes, size_bytes)

    def suspect(self) -> None:
        """Suspect any size, whatever was lost: nothing that was sent before shows the contrary."""
        self.packets, self._least_bytes, self._sequences = MTU_SUSPECT_LOSSES, _ANY_BYTES, range(0)

    def reset(self) -> None:
        """End the row."""
        self.packets = self._least_bytes = self._delivered_bytes = 0
        self._sequences = range(0)

    @property
    def is_suspect(self) -> bool:
        """Whether so many packets were lost in a row."""
        return self.packets >= MTU_SUSPECT_LOSSES


class BlackHole(SizeLosses):
    """The row of all paths: `on_burst`, `on_delivered`."""

    __slots__ = ("_round_at", "_round_sent_at", "_rounds", "began_at")

    def __init__(self) -> None:
        super().__init__()
        self.began_at = math.inf
        """When the first packet of the row was sent."""
        self._rounds = 0
        self._round_at = self._round_sent_at = -math.inf  # when the last round's first loss was known, and was sent

    def on_burst(self, packets: int, *, size_bytes: int, sent_at: float, answered_at: float, now: float) -> None:
        """Note that packets which were sent together were lost.

        `answered_at`: when the latest of the packets that were answered was sent, of any size.
        """
        counts = self.on_lost(packets, size_bytes=size_bytes)
        if counts and sent_at < self.began_at:
            self.began_at = sent_at
        if counts and sent_at >= self._round_at and answered_at > self._round_sent_at:
            self._rounds += 1
            self._round_at, self._round_sent_at = now, sent_at

    def reset(self) -> None:
        """End the row."""
        super().reset()
        self.began_at = math.inf
        self._rounds = 0
        self._round_at = self._round_sent_at = -math.inf

    @property
    def is_found(self) -> bool:
        """Whether no path carries the size."""
        return self.is_suspect and self._rounds >= MTU_SUSPECT_ROUNDS
