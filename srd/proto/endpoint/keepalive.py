"""Keepalive probes of one peer: when it is probed, over how many paths, and when it counts as unresponsive.

1. A peer that answers nothing gets keepalive probes, and is declared unresponsive only after at least three rounds of
   them were left unanswered: an interpreter that was stopped for a second must not declare every peer dead. While
   all data is acknowledged any packet is a sign of life. Else only an answer is one, to data or to a probe: packets may
   pass one way only.
2. Both times are longer where the round trip is long. Before a round trip was measured, the time until the first packet
   arrives bounds it, and until that one arrives the peer has as long as the handshake may take.
3. Each round uses more paths than the one before, since the links may be dead and not the peer. Without an active path
   every path is probed already (`paths.table`), so one keepalive probe a round is enough.
4. An idle peer is probed the less often the more peers there are. After one unanswered probe it is probed like any
   other.
5. Where packets come, also from another address that is valid, and nothing is answered for `MOVE_ROUNDS` rounds, the
   peer has moved there (`paths.validation`). As soon as there is such an address an answer is asked for (`ask`).
6. Where an ICMP error says that the peer's port is closed, as it is when its process has died, the timeout is
   `REFUSED_S` at most, until a packet comes. Such an error may be forged: it cannot end a peer that answers.
7. While the receiver is not ready, or its grant was lost, probes begin soon, with exponential back-off.
"""

from __future__ import annotations

import math
from typing import Final

from srd.proto.config import ProtocolConfig
from srd.proto.congestion.limits import ActivePeers
from srd.proto.recv.receiver import Receiver
from srd.proto.send.sender import Sender

PROBES_BEFORE_END: Final = 3
"""Unanswered rounds of keepalive probes before a peer is declared unresponsive."""
MOVE_ROUNDS: Final = 2
"""Unanswered rounds, each of a whole interval, before a peer is taken to be at another address: five probes, over as
many paths. The next round goes there."""
PROBES_SPREAD: Final = 4
"""Factor by which each round of keepalive probes uses more paths than the one before."""
PROBE_RTTS: Final = 1.5
"""Smallest interval of keepalive probes, in round trips: the answer to the last one is due before the next is sent."""
SILENCE_RTTS: Final = 6
"""Smallest time after which a peer is unresponsive, in round trips: four of these intervals, as with the defaults."""
REFUSED_S: Final = 1.0
"""The default of `unresponsive_after_s`. A longer one is for a process that is busy, and this one seems to be gone."""
IDLE_PROBE_S: Final = 0.005
"""Keepalive interval of an idle peer, times the number of peers: it bounds the total rate of keepalive probes, so that
each of 10,000 idle peers is probed every 50 s."""
MAX_IDLE_PROBE_S: Final = 60.0
"""Longest keepalive interval of an idle peer, however many peers there are; a second more is the longest that a dead
one is kept."""
MAX_DOUBLINGS: Final = 16


class Keepalive:
    """`on_packet` for all that arrives; `poll_round` at `probe_at`, then `take_probe`."""

    __slots__ = (
        "_active_peers", "_asks", "_awaits_packet", "_config", "_is_refused", "_max_rtt_s", "_opened_at", "_probed_at",
        "_probes_due", "_receiver", "_rounds", "_sender", "_unanswered_since", "last_packet_at",
    )  # fmt: skip

    def __init__(
        self,
        config: ProtocolConfig,
        *,
        receiver: Receiver,
        sender: Sender,
        active_peers: ActivePeers,
        max_rtt_s: float,
        now: float,
    ) -> None:
        """Begin when the handshake is complete at this end, which bounds the round trip; infinite: it does not."""
        self.last_packet_at = now
        self._config = config
        self._receiver = receiver
        self._sender = sender
        self._active_peers = active_peers  # all peers of the endpoint
        self._unanswered_since = now  # start of the timeout that the unanswered probes belong to
        self._probed_at = now  # time of the last sign of life, or probe sent
        self._rounds = 0  # of probes without an answer
        self._probes_due = 0  # probes of the current round that are still to be sent
        self._asks = False  # whether only an answer is a sign of life, though all data is acknowledged
        self._is_refused = False  # whether its port was said to be closed, and no packet has come since
        self._awaits_packet = False  # whether the responder's first packet is still to come
        self._opened_at = now
        self._max_rtt_s = max_rtt_s  # the longest that the round trip can be; infinite before a packet has shown it

    def confirm(self) -> None:
        """Send one probe now, and again soon until a packet arrives: it confirms the keys to the responder."""
        self._probes_due, self._awaits_packet = 1, True

    def on_confirmed(self) -> None:
        """Note that an authentic packet arrived."""
        self._awaits_packet = False

    def on_packet(self, *, is_answer: bool = False, now: float) -> None:
        """Note that a packet arrived. `is_answer`: it shows that the other end receives what is sent to it."""
        self.last_packet_at = now
        self._is_refused = False
        if not is_answer and (self._asks or self._sender.awaits_ack):
            return
        if self._max_rtt_s == math.inf and now > self._opened_at:
            self._max_rtt_s = now - self._opened_at
        self._probed_at = now
        self._rounds = self._probes_due = 0
        self._asks = False

    def ask(self, *, now: float) -> None:
        """Probe now, since a packet has come from elsewhere: only an answer is a sign of life from here on."""
        self.last_packet_at, self._asks = now, True

    def on_refused(self) -> None:
        """Note that the peer's port seems to be closed."""
        self._is_refused = True

    def on_moved(self, *, now: float) -> None:
        """Note that the peer has another address, which is probed now, and has as long to answer."""
        self._probed_at, self._asks = now, True
        self._rounds = self._probes_due = 0

    def on_busy(self, *, now: float) -> None:
        """Note that an idle peer has something to send: its last probe may be old."""
        self._probed_at = now

    # -- time ---------------------------------------------------------------------------------------------------

    @property
    def unresponsive_after_s(self) -> float:
        """How long a peer may be silent."""
        longest_s = min(SILENCE_RTTS * self._longest_rtt_s, self._config.handshake_timeout_s)
        limit_s = self._config.unresponsive_after_s
        return max(min(limit_s, REFUSED_S) if self._is_refused else limit_s, longest_s)

    def is_unresponsive(self, *, now: float) -> bool:
        """Whether enough rounds of probes were left unanswered for long enough."""
        asked = self._rounds >= PROBES_BEFORE_END and now >= self.probe_at()
        return asked and now >= self._unanswered_since + self.unresponsive_after_s

    def seems_elsewhere(self, *, now: float) -> bool:
        """Whether packets come, and what is sent to the peer's address is not answered. Valid when a round begins."""
        waited_s = now - self._unanswered_since
        return (
            self._rounds > MOVE_ROUNDS
            and waited_s >= MOVE_ROUNDS * self._probe_after_s
            and self.last_packet_at > self._unanswered_since
        )

    def silence(self, *, now: float) -> str:
        """Return what makes it unresponsive."""
        silent_s, unanswered_s = now - self.last_packet_at, now - self._unanswered_since
        if silent_s > unanswered_s / 2:  # what came behind the last answer was on its way
            return f"no packet for {silent_s:.1f} s"
        return f"nothing that was sent was acknowledged for {unanswered_s:.1f} s, though packets come"

    def probe_at(self) -> float:
        """When the next round of probes is due, or the peer is to be declared unresponsive."""
        interval_s = self._probe_after_s
        if self._awaits_packet:
            interval_s = self._config.initial_rtt_s
        elif self._asks:
            interval_s = interval_s if self._rounds else 0.0
        elif self._sender.idle and not self._receiver.incomplete:
            if not self._rounds:
                interval_s = max(interval_s, min(IDLE_PROBE_S * len(self._active_peers), MAX_IDLE_PROBE_S))
        elif self._sender.credit_blocked:
            interval_s = min(interval_s, self._sender.retry_s * (1 << min(self._rounds, MAX_DOUBLINGS)))
        ask_at = self._probed_at + interval_s
        if self._rounds < PROBES_BEFORE_END:
            return ask_at
        # The last probe gets at least half its interval, the timeout otherwise not more than its limit.
        return min(ask_at, max(self._unanswered_since + self.unresponsive_after_s, self._probed_at + interval_s / 2))

    @property
    def _longest_rtt_s(self) -> float:
        """The round trip, or before one was measured what bounds it; infinite before anything does."""
        rtt_s = self._sender.measured_rtt_s
        return self._max_rtt_s if rtt_s == math.inf else rtt_s

    @property
    def _probe_after_s(self) -> float:
        """Interval of probes; while nothing bounds the round trip it doubles with each."""
        rtt_s, least_s = self._longest_rtt_s, self._config.probe_after_s
        if rtt_s == math.inf:
            return least_s * (1 << min(self._rounds, MAX_DOUBLINGS))
        return max(PROBE_RTTS * rtt_s, least_s)

    # -- probes -------------------------------------------------------------------------------------------------

    def poll_round(self, *, now: float) -> bool:
        """Begin the next round of probes, if it is due; return whether it was."""
        if now < self.probe_at():
            return False
        if not self._rounds:  # an idle peer has the same timeout from here on
            self._unanswered_since = max(self._probed_at, now - self._probe_after_s)
        spread = PROBES_SPREAD**self._rounds if self._sender.has_active_path else 1
        self._probes_due = min(spread, self._config.paths)
        self._rounds += 1
        self._probed_at = now
        return True

    def take_probe(self) -> bool:
        """Return whether a probe of the current round is to be sent now."""
        if not self._probes_due:
            return False
        self._probes_due -= 1
        return True

    @property
    def is_last_of_round(self) -> bool:
        """Whether no further probe of the round is due: that one takes the path that answered last."""
        return not self._probes_due
