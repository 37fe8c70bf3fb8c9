"""Receiver-driven credit: which of many peers may send now (PROTOCOL.md, section 10, Pulls). Peers share the last link.

A congestion window of less than a packet is slow to find and slow to change, and a thousand senders that each begin
with a single packet overflow any switch port before the first of them has learned anything. So an endpoint with many
peers lets them send in turns, as SIRD does (Prasopoulos et al., NSDI 2025); Homa's grants, NDP's pulls and UET's RCCC
are of the same kind. Why each rule is as it is:

1. Few peers cost nothing: an endpoint with no more than `incast_packets` sends no PULL at all.
2. A sender that asks late may catch up by `HEAD_START` turns: of a thousand requests at one instant most are lost.
3. What arrives makes room for the next turn, so pulls have the pace of the last link, and its queue stays short.
4. If few senders are active they are free: their own windows are enough.
5. What was pulled and is late may only be slow, or the PULL was lost: its sender keeps its place, and its next turn
   repeats the PULL. The timeout is measured from pull to data, so that it includes what both hosts take. Peers that ask
   and do not send take up a packet each, for `LATE_TURNS` turns. Lost data is pulled again when its sender asks.
6. Messages that arrive in turns pin memory, so not all take turns. The longest message is kept free for
   `endpoint.admission`. A sender that has asked for more than `SHIFT_FRACTION` of a receive window waits again after
   that much.
7. A sender that was refused for lack of memory is free: its back-off limits it, and in its turn for the memory it must
   not wait for others that would be refused.
8. The PULL that tells a peer to ask may be lost, so a long burst that nobody asked for is noted, and another one a
   timeout later makes it due again. Nothing asks a peer that sends small messages.

All is counted in bytes of data packets with their headers, from the opening of the peer. There is one record of
constant size for each peer that has asked, until it ends, and a time for each that sends unasked.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Final

from srd.proto.config import ProtocolConfig
from srd.proto.congestion.rate import DeliveryRate
from srd.proto.paths.rtt import RttEstimator
from srd.proto.wire.control import ANY_BYTES, NO_LIMIT_BYTES, Pull, PullRequest

UNSOLICITED_BYTES: Final = 1024
"""What each of many peers may have in flight unasked: small messages, of a thousand peers as much as one window."""
FREE_FRACTION: Final = 1 / 8
"""Active peers, over `incast_packets`, up to which they are free."""
WINDOW_GAIN: Final = 1.25
"""Window over the bandwidth-delay product: above 1 it grows while the link is not full."""
LATE_TURNS: Final = 4
"""Times in a row that what was pulled from a sender is late before it has to ask again."""
MAX_LATE_SHIFT: Final = 4
"""Most doublings of the time after which data is late: a sender repeats its request within that by itself."""
IDLE_TIMES: Final = 4.0
"""Times the usual time from a pull to its data, after which a peer without a limit that sends nothing is idle."""
HEAD_START: Final = 8
"""Turns that a sender may have in advance of others when it begins to ask; more would let it hold up the others."""
SHIFT_FRACTION: Final = 1 / 8
"""What a sender may send before it waits again, over the receive window."""
MAX_COUNT: Final = (1 << 63) - 1
"""Largest count of a sender that is taken at its word."""


@dataclass(slots=True)
class _Turns:
    """A peer that has asked."""

    peer: int
    packet_bytes: int
    """A full packet."""
    number: int = 1
    """Of the last PULL that it was sent; the first tells it to ask."""
    received_bytes: int = 0
    """What had arrived in all when that was last looked at."""
    arrived_bytes: int = 0
    """Of what its sender has sent, what has arrived, or was lost before its last request."""
    limit_bytes: int = 0
    """What its sender may have sent in all."""
    wanted_bytes: int = 0
    """What its sender will have sent in all."""
    pulled_at: float = 0.0
    """When the oldest part of what is outstanding was pulled, or the last part of it arrived."""
    timed_at: float | None = None
    """When the pull was sent that is timed; None: none is."""
    timed_bytes: int = 0
    """And `arrived_bytes` with which its data has arrived."""
    is_late: bool = False
    """Whether what was pulled did not arrive in time, and no longer counts."""
    late_turns: int = 0
    """Times in a row that this was so."""
    free_number: int | None = None
    """Number of the PULL that set no limit, if none set one since."""
    shift_bytes: int = 0
    """While it takes turns: what it may send before it waits again."""
    shift_end_bytes: int = 0
    """And `limit_bytes` at which it has."""
    turns: int = 0
    """Turns that it has had, and those of others while it did not ask."""
    waits: bool = False
    """Whether it is in the queue."""
    proven: bool = False
    """Whether data followed a pull, since something pulled was last late."""

    @property
    def outstanding_bytes(self) -> int:
        """What was pulled and has not arrived, if it counts."""
        return 0 if self.is_late else max(self.limit_bytes - self.arrived_bytes, 0)

    @property
    def left_bytes(self) -> int:
        """What it asked for and was not pulled."""
        return max(self.wanted_bytes - self.limit_bytes, 0)


class Pulls:
    """`on_peers`, `on_request`, `on_data`, then `take_turns`; `due` has the peers that are sent a PULL (`poll`)."""

    __slots__ = (
        "_active", "_config", "_free", "_late_shift", "_order", "_outstanding", "_outstanding_bytes", "_queue",
        "_rate", "_shifts_bytes", "_time", "_turn", "_turns", "_unasked_at", "_waiting", "_window_bytes", "due",
        "is_crowded",
    )  # fmt: skip

    def __init__(self, config: ProtocolConfig) -> None:
        self.is_crowded = False
        """Whether there are so many peers that they have to ask."""
        self.due: dict[int, None] = {}
        """Numbers of the peers to which a PULL is due."""
        self._config = config
        self._turns: dict[int, _Turns] = {}  # by number of the peer
        self._waiting: dict[int, _Turns] = {}  # those that take no turns yet, in order
        self._shifts_bytes = 0  # of those that take turns
        self._queue: list[tuple[int, int, _Turns]] = []  # a heap, by the turns that they have had
        self._order = 0  # of entry into the queue
        self._turn = 0  # `turns` of the last that had one
        self._outstanding: dict[int, _Turns] = {}  # those with something outstanding, in the order of `pulled_at`
        self._outstanding_bytes = 0
        self._active: set[int] = set()  # peers of which something announced has not arrived
        self._free: dict[int, float] = {}  # peers without a limit: when data of theirs last arrived
        self._unasked_at: dict[int, float] = {}  # when a peer sent what it should have asked for, or was told again
        self._window_bytes = 0
        self._rate = DeliveryRate()
        self._time = RttEstimator(initial_s=config.initial_rtt_s)  # from a pull to its data
        self._late_shift = 0  # doublings of the time after which data is late

    # -- peers --------------------------------------------------------------------------------------------------

    def on_peers(self, numbers: Collection[int]) -> None:
        """Note that there are these peers now. They are told to ask once they are too many."""
        if self.is_crowded:
            if 2 * len(numbers) <= self._config.incast_packets:
                self._end()
        elif len(numbers) > self._config.incast_packets:
            self.is_crowded = True
            self.due = dict.fromkeys(numbers)

    def _end(self) -> None:
        """Let all peers send as they like."""
        self.is_crowded = False
        for turns in self._turns.values():
            self._retire(turns)
            self.due[turns.peer] = None
        self._free.clear()
        self._unasked_at.clear()

    def on_opened(self, peer: int) -> None:
        """Note that a peer is open: it is told to ask if there are many."""
        if self.is_crowded:
            self.due[peer] = None

    def forget(self, peer: int, *, left: Collection[int]) -> None:
        """Remove a peer that has ended; `left` are the others."""
        self.due.pop(peer, None)
        self._free.pop(peer, None)
        self._unasked_at.pop(peer, None)
        if (turns := self._turns.pop(peer, None)) is not None:
            self._retire(turns)
        self.on_peers(left)

    # -- requests and data --------------------------------------------------------------------------------------

    def on_request(self, peer: int, request: PullRequest, *, packet_bytes: int, received_bytes: int) -> None:
        """Process a request of a peer whose full packets have so many bytes, and of which so much has arrived."""
        self.due[peer] = None
        if (turns := self._turns.get(peer)) is None:
            turns = self._turns[peer] = _Turns(peer, packet_bytes)
        turns.received_bytes = received_bytes
        if turns.free_number is not None and request.number < turns.free_number:
            return  # it asked before it knew that it is free
        turns.free_number = None
        self._free.pop(peer, None)
        # Never back: a sender cannot make more outstanding than was pulled.
        self._settle(turns, arrived_bytes=max(min(request.sent_bytes, MAX_COUNT), turns.arrived_bytes))
        turns.limit_bytes = max(turns.limit_bytes, turns.arrived_bytes)
        turns.timed_at = None  # what is counted as lost may still arrive
        turns.late_turns = 0
        turns.wanted_bytes = min(turns.arrived_bytes + request.backlog_bytes, MAX_COUNT)
        self._window_bytes = max(
            self._config.incast_packets * packet_bytes,
            int(WINDOW_GAIN * self._rate.max_bytes_per_s * (self._time.min_s if self._time.sampled else 0.0)),
        )
        if self.is_crowded and turns.left_bytes:
            self._active.add(peer)
            self._go_on(turns)

    def on_data(self, peer: int, *, burst_bytes: int, received_bytes: int, now: float) -> None:
        """Note that a burst of so much payload has arrived of a peer, and so much in all."""
        turns = self._turns.get(peer)
        if burst_bytes > UNSOLICITED_BYTES:
            self._note_unasked(peer, turns, now=now)
        if turns is None:
            return
        new_bytes, turns.received_bytes = received_bytes - turns.received_bytes, received_bytes
        if turns.free_number is not None:
            self._free[peer] = now
            return
        if not new_bytes:
            return
        self._rate.on_ack(now=now, acked_bytes=new_bytes, span_s=self._time.smoothed_s)
        if turns.limit_bytes > turns.arrived_bytes:  # late or not
            turns.proven, turns.late_turns, self._late_shift = True, 0, 0
        self._settle(turns, arrived_bytes=turns.arrived_bytes + new_bytes)
        if turns.timed_at is not None and turns.arrived_bytes >= turns.timed_bytes:
            self._time.update(now - turns.timed_at, now=now)
            turns.timed_at = None
        if turns.outstanding_bytes:
            self._note_outstanding(turns, now=now)
        if turns.arrived_bytes >= turns.wanted_bytes:
            self._retire(turns)
        elif turns.proven and self._has_few_active(now=now):
            self._set_free(turns, now=now)
        else:
            self._go_on(turns)

    def _note_unasked(self, peer: int, turns: _Turns | None, *, now: float) -> None:
        """Repeat the PULL to a peer that goes on to send what it should ask for."""
        if turns is not None and (turns.free_number is not None or turns.limit_bytes > turns.arrived_bytes):
            self._unasked_at.pop(peer, None)
        elif now >= self._unasked_at.setdefault(peer, now) + self._timeout_s:
            self._unasked_at[peer] = now
            self.due[peer] = None

    def on_refused(self, peer: int, *, now: float) -> None:
        """Note that data of a peer was refused for lack of memory."""
        turns = self._turns.get(peer)
        if self.is_crowded and turns is not None and turns.free_number is None:
            self._set_free(turns, now=now)

    def waits(self, peer: int) -> bool:
        """Whether a peer waits for its turn, or for the arrival of what was pulled."""
        return peer in self._active

    def _has_few_active(self, *, now: float) -> bool:
        few = int(self._config.incast_packets * FREE_FRACTION)
        if len(self._active) + len(self._free) > few:
            silent_at = now - IDLE_TIMES * max(self._time.smoothed_s, self._config.min_rto_s)
            self._free = {peer: at for peer, at in self._free.items() if at > silent_at}
        return len(self._active) + len(self._free) <= few

    def _set_free(self, turns: _Turns, *, now: float) -> None:
        self._retire(turns)
        turns.free_number = turns.number + 1
        self._free[turns.peer] = now
        self.due[turns.peer] = None

    # -- turns --------------------------------------------------------------------------------------------------

    def take_turns(self, *, now: float) -> None:
        """Give up what is late, then pull what the window allows."""
        self._give_up(now=now)
        self._begin_shifts()
        while self._queue and self._outstanding_bytes < self._window_bytes:
            self._turn, _, turns = heappop(self._queue)
            turns.waits = False
            turns.limit_bytes = max(turns.limit_bytes, turns.arrived_bytes)  # its sender may have sent more unasked
            pulled_bytes = 0
            if not turns.is_late:
                pulled_bytes = min(turns.packet_bytes, turns.left_bytes, turns.shift_end_bytes - turns.limit_bytes)
                if pulled_bytes <= 0:
                    continue  # it is done, or its sender wants less now
            self._pull(turns, pulled_bytes=pulled_bytes, now=now)
            self._queue_up(turns)

    def _pull(self, turns: _Turns, *, pulled_bytes: int, now: float) -> None:
        """Let a peer send so much more; if what it was pulled is late, repeat that."""
        before_bytes = turns.outstanding_bytes
        turns.turns += 1
        turns.limit_bytes += pulled_bytes
        if turns.timed_at is None and not turns.is_late:
            turns.timed_at, turns.timed_bytes = now, turns.limit_bytes
        turns.is_late = False
        self._outstanding_bytes += turns.outstanding_bytes - before_bytes
        if not before_bytes:
            self._note_outstanding(turns, now=now)
        self.due[turns.peer] = None

    def _begin_shifts(self) -> None:
        """Let those that wait take turns, as far as there is room for what they have asked for."""
        window_bytes = self._config.receive_window_bytes
        room_bytes = 2 * window_bytes - self._config.max_message_bytes
        while self._waiting:
            turns = next(iter(self._waiting.values()))
            shift_bytes = max(min(turns.left_bytes, int(window_bytes * SHIFT_FRACTION)), turns.packet_bytes)
            if self._shifts_bytes + shift_bytes > room_bytes:
                return
            del self._waiting[turns.peer]
            self._shifts_bytes += shift_bytes
            turns.shift_bytes, turns.shift_end_bytes = shift_bytes, turns.limit_bytes + shift_bytes
            turns.turns = max(turns.turns, self._turn - HEAD_START)
            self._queue_up(turns)

    def _go_on(self, turns: _Turns) -> None:
        """Let a peer that has more to send take its next turn, or wait for the next shift."""
        if turns.arrived_bytes >= turns.shift_end_bytes:
            self._end_shift(turns)
            self._waiting[turns.peer] = turns
        else:
            self._queue_up(turns)

    def _end_shift(self, turns: _Turns) -> None:
        self._shifts_bytes -= turns.shift_bytes
        turns.shift_bytes = turns.shift_end_bytes = 0

    def _retire(self, turns: _Turns) -> None:
        """Let a peer take no more turns until it asks again."""
        self._settle(turns, arrived_bytes=max(turns.limit_bytes, turns.arrived_bytes))
        self._end_shift(turns)
        turns.wanted_bytes = 0
        turns.timed_at = None
        self._active.discard(turns.peer)
        self._waiting.pop(turns.peer, None)

    def _queue_up(self, turns: _Turns) -> None:
        """Let a peer have a turn, unless what it was pulled has to arrive first."""
        share_bytes = self._window_bytes // max(len(self._active), 1) if turns.proven else 0
        wants = turns.is_late or turns.left_bytes
        if not turns.waits and wants and turns.outstanding_bytes <= max(share_bytes - turns.packet_bytes, 0):
            turns.waits = True
            self._order += 1
            heappush(self._queue, (turns.turns, self._order, turns))

    def _note_outstanding(self, turns: _Turns, *, now: float) -> None:
        turns.pulled_at = now
        self._outstanding.pop(turns.peer, None)  # to the end
        self._outstanding[turns.peer] = turns

    def _settle(self, turns: _Turns, *, arrived_bytes: int) -> None:
        """Set what of a peer's data has arrived."""
        before_bytes = turns.outstanding_bytes
        turns.arrived_bytes = arrived_bytes
        turns.is_late = turns.is_late and arrived_bytes < turns.limit_bytes
        self._outstanding_bytes += turns.outstanding_bytes - before_bytes
        if not turns.outstanding_bytes:
            self._outstanding.pop(turns.peer, None)

    def _give_up(self, *, now: float) -> None:
        """Let what is late no longer count."""
        timeout_s, before = self._timeout_s, len(self._outstanding)
        while self._outstanding:
            turns = next(iter(self._outstanding.values()))
            if turns.pulled_at + timeout_s > now:
                break
            turns.proven = False  # its time counts all the same, else a time above the timeout would never be known
            turns.late_turns += 1
            if turns.late_turns >= LATE_TURNS:
                self._retire(turns)
                continue
            self._outstanding_bytes -= turns.outstanding_bytes
            turns.is_late = True
            del self._outstanding[turns.peer]
            self._queue_up(turns)
        if len(self._outstanding) < before:
            self._late_shift = min(self._late_shift + 1, MAX_LATE_SHIFT)

    @property
    def _timeout_s(self) -> float:
        return self._time.timeout_s(floor_s=self._config.min_rto_s) * (1 << self._late_shift)

    @property
    def check_at(self) -> float | None:
        """When something pulled is late; None if nothing is outstanding."""
        if not self._outstanding:
            return None
        first = next(iter(self._outstanding.values()))
        return first.pulled_at + self._timeout_s

    # -- output -------------------------------------------------------------------------------------------------

    def poll(self, peer: int, *, context: int) -> Pull:
        """Return the PULL that is due to a peer, whose end of it has this context."""
        del self.due[peer]
        turns = self._turns.get(peer)
        if turns is None:
            return Pull(context, 0, 1, UNSOLICITED_BYTES)
        turns.number += 1
        path = turns.number % self._config.paths
        if not self.is_crowded:
            return Pull(context, NO_LIMIT_BYTES, turns.number, ANY_BYTES, path)
        limit_bytes = turns.limit_bytes if turns.free_number is None else NO_LIMIT_BYTES
        return Pull(context, limit_bytes, turns.number, UNSOLICITED_BYTES, path)
