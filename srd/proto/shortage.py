"""Which message is taken while memory is short: one, so that it becomes whole.

Every peer is promised a window of its own, and the windows of many peers are together more than the memory there is.
Were all of them taken in part until nothing is left, none could become whole, and none would ever give memory back. So
the owner of the memory keeps a reserve, as large as the longest message, and says when less than that is left
(`scarce`). From then on only the oldest incomplete message is taken; of all others the sender learns that the receiver
is not ready (RNR), and comes again. An owner with several memories has a shortage for each: its `holds` tells which.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from srd.proto.events import Frag
from srd.proto.peer import PeerCore
from srd.proto.wire import OPCODE_BITS, Opcode, Run


class Shortage:
    """`admits` says whether a run may be taken though memory is scarce."""

    __slots__ = ("_favoured", "_holds", "refused_packets")

    def __init__(self, holds: Callable[[Frag], bool] = lambda _: True) -> None:
        """Take `holds`: whether a piece lies in the memory that is short."""
        self.refused_packets = 0
        self._holds = holds
        self._favoured: tuple[int, int] | None = None  # peer and message

    def admits(self, peer: PeerCore, run: Run, *, peers: Mapping[int, PeerCore]) -> bool:
        """Whether the run needs no memory to keep, or belongs to the one message that is taken."""
        if not run.payload_bytes or run.flags & OPCODE_BITS != Opcode.SEND:
            return True
        if self._favoured is None or not self._waits_for(self._favoured, peers):
            self._favoured = self._oldest(peers) or (peer.number, run.message)
        if self._favoured == (peer.number, run.message):
            return True
        self.refused_packets += run.count
        return False

    @staticmethod
    def _waits_for(favoured: tuple[int, int], peers: Mapping[int, PeerCore]) -> bool:
        number, message = favoured
        return number in peers and peers[number].receiver.holds_part_of(message)

    def _oldest(self, peers: Mapping[int, PeerCore]) -> tuple[int, int] | None:
        for number, peer in peers.items():
            if (message := peer.receiver.oldest_part(self._holds)) is not None:
                return number, message
        return None
