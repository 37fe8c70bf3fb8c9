"""Admission while memory is short: one incomplete message is admitted, so that it becomes complete.

Every peer is granted a receive window of its own, and the windows of many peers together exceed the memory. If all
messages were received in part until no memory is left, none could become complete, and no memory would be freed. So the
owner of the memory keeps a reserve as large as the longest message, and reports when less than that is left
(`handle_packets(..., low_region=...)`). From then on only one incomplete message is admitted. The senders of all others
get RNR (receiver not ready), and retry. The core has a `MemoryAdmission` for each region that was ever short:

1. Peers that were refused take turns, in the order of their waiting. A turn is one message, the peer's oldest that is
   in this memory. A peer not received from for TURN_MEMORY_S leaves the queue.
2. A turn in which nothing lands for `stalled_after_s` ends, and all incomplete messages of the peer in this memory are
   discarded (`evict_stalled`): the peer had the free memory, and did not use it. Until a message of that peer
   becomes complete in a turn of its own, it comes after all others that wait, so that a peer that never completes a
   message cannot take turn after turn.
3. A message of a peer that was not refused is discarded, too, when nothing of it landed for as long. Time in which the
   peer was refused does not count, nor for a turn the time in which there was no memory at all, nor the time in which
   a peer waits for its turn to send (see `recv.pulls`). What is kept in spite
   of these rules ends by the timeout of every message (`reassembly_timeout_s`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from srd.proto.endpoint.peer import PeerCore
from srd.proto.events import REGION_SHIFT, Extent
from srd.proto.wire.data import OPCODE_BITS, Opcode, ReceivedBurst

TURN_MEMORY_S: Final = 0.5
"""Time after its last refusal for which a sender keeps its turn: it retries within `probe_after_s` (0.25 s) and a round
trip."""
CHECKS_PER_STALL: Final = 8
"""Checks for stalled messages per `stalled_after_s`: a check may have many messages to examine."""


class MemoryAdmission:
    """Which sends are received while one region is short of memory. The sender of what is refused gets RNR."""

    __slots__ = (
        "_check_at",
        "_message",
        "_region",
        "_since",
        "_stalled",
        "_turn",
        "_waiting",
    )  # fmt: skip

    def __init__(self, region: int) -> None:
        """Take the number of the region that is short of memory."""
        self._region = region
        self._turn: int | None = None  # the peer whose turn it is
        self._message: int | None = None  # the message of that turn; None: it has not begun yet
        self._since = 0.0  # when the turn began
        self._waiting: dict[int, float] = {}  # peers that were refused, in order, with the time of the last refusal
        self._stalled: set[int] = set()  # peers whose last turn stalled
        self._check_at = 0.0

    def admits(self, peer: PeerCore, burst: ReceivedBurst, *, peers: Mapping[int, PeerCore], now: float) -> bool:
        """Return whether the burst needs no memory that is kept, or belongs to the one message that is admitted.

        It has not been acknowledged.
        """
        if not burst.payload_bytes or burst.flags & OPCODE_BITS != Opcode.SEND:
            return True
        if peer.receiver.refusal(burst.message) is not None:
            return True  # it is refused with a NACK in any case
        self._end_turn(peers)
        if self._turn is None:
            self._begin_turn(peer, burst, peers=peers, now=now)
        if self._turn == peer.number and self._message in (None, burst.message):
            self._message = burst.message
            return True
        self._waiting[peer.number] = now
        return False

    def evict_stalled(self, peers: Mapping[int, PeerCore], *, now: float, stalled_after_s: float) -> list[PeerCore]:
        """Discard messages that stalled (`PeerCore.discard`); return the peers affected. Called for every batch."""
        if now < self._check_at:
            return []
        self._check_at = now + stalled_after_s / CHECKS_PER_STALL
        self._remove_ended(peers, now=now)
        if self._turn is not None and self._message is None and now - self._since >= TURN_MEMORY_S:
            self._turn = None  # its message has not come
        stalled = list(self._what_stalled(peers, since=now - stalled_after_s, now=now))
        for peer, messages in stalled:
            peer.discard(messages, now=now)
        return [peer for peer, messages in stalled if messages]

    def _what_stalled(
        self, peers: Mapping[int, PeerCore], *, since: float, now: float
    ) -> Iterator[tuple[PeerCore, list[int]]]:
        for number, peer in peers.items():
            if number == self._turn:
                if self._turn_stalled(peer, since=since):
                    self._turn = None
                    self._stalled.add(number)
                    yield peer, peer.receiver.incomplete_messages(self._is_here, since=now)
            elif peer.receiver.incomplete and peer.receiver.refused_at <= since and not peer.waits_for_pull:
                yield peer, peer.receiver.incomplete_messages(self._is_here, since=since)

    def _turn_stalled(self, peer: PeerCore, *, since: float) -> bool:
        if self._message is None or self._since > since or peer.receiver.no_memory_at > since:
            return False
        landed_at = peer.receiver.last_landed_at(self._message)
        return landed_at is not None and landed_at <= since

    def _remove_ended(self, peers: Mapping[int, PeerCore], *, now: float) -> None:
        """Remove peers that no longer exist, and those that have not retried lately."""
        self._waiting = {
            number: at for number, at in self._waiting.items() if number in peers and now - at < TURN_MEMORY_S
        }
        self._stalled &= peers.keys()

    def _end_turn(self, peers: Mapping[int, PeerCore]) -> None:
        """End the turn of a peer that no longer exists, or whose message is complete."""
        if self._turn is None:
            return
        peer = peers.get(self._turn)
        if peer is None:
            self._turn = None
        elif self._message is not None and peer.receiver.last_landed_at(self._message) is None:
            self._stalled.discard(self._turn)
            self._turn = None

    def _begin_turn(self, asking: PeerCore, burst: ReceivedBurst, *, peers: Mapping[int, PeerCore], now: float) -> None:
        """Give the turn to the peer that has waited longest; `asking`, if it has not waited, is the last."""
        self._remove_ended(peers, now=now)
        order = [*self._waiting, asking.number]
        self._turn = number = min(order, key=lambda number: number in self._stalled)  # not stalled first
        self._message = peers[number].receiver.oldest_incomplete(self._is_here)
        if self._message is None and number == asking.number:
            self._message = burst.message
        self._since = now
        self._waiting.pop(number, None)

    def _is_here(self, extent: Extent) -> bool:
        return extent.region_offset >> REGION_SHIFT == self._region
