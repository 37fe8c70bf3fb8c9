"""Which message is taken while memory is short: one, so that it becomes whole.

Every peer is promised a window of its own, and the windows of many peers are together more than the memory there is.
Were all of them taken in part until nothing is left, none could become whole, and none would ever give memory back. So
the owner of the memory keeps a reserve, as large as the longest message, and says when less than that is left
(`scarce`). From then on only one incomplete message is taken; of all others the sender learns that the receiver is not
ready (RNR), and comes again. An owner with several memories has a shortage for each: its `holds` tells which.

1. Peers that were refused take turns, in the order of their waiting; a turn is one message, the peer's oldest that is
   in this memory. One that was not heard for TURN_MEMORY_S waits no more.
2. A turn in which nothing lands for `stalled_after_s` is over, and all that the peer has in this memory in part is
   given up (`relieve`): it had what memory there was, and did not use it. Until a message of its becomes whole in a
   turn of its own, it comes after all others that wait, so who never finishes anything cannot take turn after turn.
3. A message of a peer that was not refused, and of which nothing landed for as long, is given up, too. Time in which
   the peer was refused does not count, nor for a turn the time in which there was no memory at all. What is held for
   ever all the same ends by the deadline of any message (`reassembly_timeout_s`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from srd.proto.events import Frag
from srd.proto.peer import PeerCore
from srd.proto.wire.data import OPCODE_BITS, Opcode, ReceivedBurst

TURN_MEMORY_S = 0.5
"""A sender that was refused comes again within `probe_after_s` (0.25 s) and a round trip."""
CHECKS_PER_STALL = 8
"""How often within `stalled_after_s` it is looked for what has stalled: a look may be at many messages."""


class Admission:
    """`relieve` with every batch, while memory is scarce; `admits` says whether a run of it may be taken."""

    __slots__ = (
        "_check_at",
        "_holds",
        "_message",
        "_since",
        "_stalled",
        "_turn",
        "_waiting",
        "refused_packets",
    )  # fmt: skip

    def __init__(self, holds: Callable[[Frag], bool] = lambda _: True) -> None:
        """Take `holds`: whether a piece lies in the memory that is short."""
        self.refused_packets = 0
        self._holds = holds
        self._turn: int | None = None  # the peer whose turn it is
        self._message: int | None = None  # of that peer's; None: it is yet to come
        self._since = 0.0  # when the turn began
        self._waiting: dict[int, float] = {}  # peers that were refused, in turn, and when they were last
        self._stalled: set[int] = set()  # peers that made nothing of their last turn
        self._check_at = 0.0

    def admits(self, peer: PeerCore, burst: ReceivedBurst, *, peers: Mapping[int, PeerCore], now: float) -> bool:
        """Whether the run needs no memory to keep, or belongs to the one message that is taken."""
        if not burst.payload_bytes or burst.flags & OPCODE_BITS != Opcode.SEND:
            return True
        if peer.receiver.has_discarded(burst.message):
            return True  # it is refused for good, and its sender is told so
        self._end_turn(peers)
        if self._turn is None:
            self._begin_turn(peer, burst, peers=peers, now=now)
        if self._turn == peer.number and self._message in (None, burst.message):
            self._message = burst.message
            return True
        self._waiting[peer.number] = now
        self.refused_packets += burst.count
        return False

    def evict_stalled(self, peers: Mapping[int, PeerCore], *, now: float, stalled_after_s: float) -> list[PeerCore]:
        """Give up what has stalled; return the peers that it was of. With every batch, while memory is scarce."""
        if now < self._check_at:
            return []
        self._check_at = now + stalled_after_s / CHECKS_PER_STALL
        self._forget(peers, now=now)
        if self._turn is not None and self._message is None and now - self._since >= TURN_MEMORY_S:
            self._turn = None  # it does not come
        given_up = list(self._what_stalled(peers, since=now - stalled_after_s, now=now))
        for peer, messages in given_up:
            peer.discard(messages, now=now)
        return [peer for peer, messages in given_up if messages]

    def _what_stalled(
        self, peers: Mapping[int, PeerCore], *, since: float, now: float
    ) -> Iterator[tuple[PeerCore, list[int]]]:
        for number, peer in peers.items():
            if number == self._turn:
                if self._turn_stalled(peer, since=since):
                    self._turn = None
                    self._stalled.add(number)
                    yield peer, peer.receiver.incomplete_messages(self._holds, since=now)
            elif peer.receiver.incomplete and peer.receiver.refused_at <= since:
                yield peer, peer.receiver.incomplete_messages(self._holds, since=since)

    def _turn_stalled(self, peer: PeerCore, *, since: float) -> bool:
        if self._message is None or self._since > since or peer.receiver.no_memory_at > since:
            return False
        landed_at = peer.receiver.last_landed_at(self._message)
        return landed_at is not None and landed_at <= since

    def _forget(self, peers: Mapping[int, PeerCore], *, now: float) -> None:
        """Forget peers that are gone, and that wait no more."""
        self._waiting = {
            number: at for number, at in self._waiting.items() if number in peers and now - at < TURN_MEMORY_S
        }
        self._stalled &= peers.keys()

    def _end_turn(self, peers: Mapping[int, PeerCore]) -> None:
        """End the turn of a peer that is gone, or whose message is whole."""
        if self._turn is None:
            return
        peer = peers.get(self._turn)
        if peer is None:
            self._turn = None
        elif self._message is not None and peer.receiver.last_landed_at(self._message) is None:
            self._stalled.discard(self._turn)
            self._turn = None

    def _begin_turn(self, asking: PeerCore, burst: ReceivedBurst, *, peers: Mapping[int, PeerCore], now: float) -> None:
        """Give a turn to the peer that has waited longest; one that asks and did not wait is the last."""
        self._forget(peers, now=now)
        order = [*self._waiting, asking.number]
        self._turn = number = min(order, key=lambda number: number in self._stalled)  # the first of the least
        self._message = peers[number].receiver.oldest_incomplete(self._holds)
        if self._message is None and number == asking.number:
            self._message = burst.message
        self._since = now
        self._waiting.pop(number, None)
