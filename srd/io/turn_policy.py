"""What a driver waits for after a turn, decided from what the turn carried and when the one before was.

The rules (numbers are those of `driver`):

2. A turn that delivered what may be replied to yields: the application's reply goes out first.
3. Turns that carry a stream and follow each other closely are coalesced, like interrupt moderation on a network card,
   because a wake-up costs the interpreter more than a packet does. The pause follows the rate of the stream; at a high
   rate the loop polls briefly instead (see `moderation`). A turn carries a stream if it sent or received bulk data of
   which more follows independently of the application: ACKs release more of it, a message is still incomplete, or
   several messages arrived at once.
   A request-response exchange is not delayed: after two messages in quick succession the loop polls for a while
   instead of sleeping (see `adaptive_poll`).

States, each entered at the end of a turn:

    state       sockets polled  the next turn                             entered when a turn
    WAITING     yes             reads (if readable), delivers, sends      was none of the following
    YIELDED     yes             sends the application's reply first       delivered what may be replied to
    COALESCING  no              reads, when the pause is over             carried a stream, soon after another such turn
    LIMITED     no              reads, when the allowance permits it      ended with the incoming allowance exhausted
    CLOSED      no              none                                      failed, or `close` was called
"""

from __future__ import annotations

from enum import IntEnum, auto
from typing import Final

from srd.io.moderation import BUSY_S, POLL_S, Moderator

BULK_BYTES: Final = 8 << 10
"""A turn that receives or sends at least this much payload carries bulk data; one packet of 9,000 bytes is enough."""
REPLIES_WITHIN_S: Final = 0.005
"""A message that follows another within this time may be a request, or a reply. Many round trips of a slow host; and a
stream of messages that is slower hardly loads a host if each of its turns takes twice as long."""

MOST_VAIN: Final = 6
"""A driver polls for the rest of a message in one turn of 64 at least, to notice that the sender has become faster."""


class DriverState(IntEnum):
    """What the driver waits for.

    An IntEnum, as Enum's hash is a function in Python, and each turn looks the state up.
    """

    WAITING = auto()
    YIELDED = auto()
    COALESCING = auto()
    LIMITED = auto()
    CLOSED = auto()


POLLS_SOCKETS: Final = {
    DriverState.WAITING: True,
    DriverState.YIELDED: True,
    DriverState.COALESCING: False,
    DriverState.LIMITED: False,
    DriverState.CLOSED: False,
}
"""Whether the event loop polls the sockets."""


class Turn:
    """What a turn has done so far."""

    def __init__(self, *, reads: bool) -> None:  # no dataclass, whose constructor is not compiled
        self.reads = reads  # whether it looks for what has arrived
        self.received = False
        self.read_bytes = 0  # payload
        self.sent_bytes = 0
        self.messages = 0  # delivered
        self.events = 0
        self.ended = False  # whether a peer has


class TurnPolicy:
    """Tell it when a turn has read (`on_read`) and what it did (`after`); it says how the driver goes on."""

    def __init__(self, *, adaptive_poll_s: float, pauses: bool) -> None:
        """`adaptive_poll_s`: see `EndpointConfig`; `pauses`: False for a driver that never sleeps."""
        self._adaptive_poll_s = adaptive_poll_s
        self._pauses = pauses
        self._moderator = Moderator()
        self._vain = 0  # how many times in a row it has polled in vain for the rest of a message
        self._turns = 0  # that could have, since the last one that has
        self._since_s = 0.0  # time between the last two turns that read something
        self.read_at = 0.0
        """When the last turn read something."""
        self.pause_until: float | None = None
        """End of the state COALESCING."""
        self.poll_s = 0.0
        """How long to poll from `read_at`, instead of sleeping; 0: not."""

    def on_read(self, now: float) -> None:
        """Note that a turn has received something."""
        self._since_s, self.read_at = now - self.read_at, now

    def polls_for_rest(self) -> bool:
        """Whether a turn is to poll for the rest of a message (rule 7): half as often after each time in vain."""
        self._turns += 1
        if self._turns < 1 << min(self._vain, MOST_VAIN):
            return False
        self._turns = 0
        return True

    def on_rest(self, *, has_come: bool) -> None:
        """Note whether any of it has come when it was polled for."""
        self._vain = 0 if has_come else self._vain + 1

    def yields(self, turn: Turn, *, expects_more: bool) -> bool:
        """Whether the application may reply to a message of a request-response exchange: short, or alone.

        Not after the end of a peer: the application may react to it by closing this endpoint at once. `expects_more`:
        whether much of a message is missing.
        """
        if turn.messages == 0 or turn.ended or self._since_s >= max(self._adaptive_poll_s, REPLIES_WITHIN_S):
            return False
        return turn.read_bytes < BULK_BYTES or (turn.messages == 1 and not expects_more)

    def after(self, turn: Turn, *, state: DriverState, yields: bool, expects_more: bool, may_read: bool) -> DriverState:
        """Return the state after a turn in `state`; set `pause_until` and `poll_s`. `may_read`: see `Throttle`."""
        self.poll_s = 0.0
        self._moderator.carry(turn.read_bytes + turn.sent_bytes)
        if not (may_read or yields):
            self.pause_until = None
            return DriverState.LIMITED
        if not turn.reads:
            return DriverState.COALESCING if state is DriverState.COALESCING else DriverState.WAITING
        self.pause_until = None
        if turn.received and self._pauses:
            self._moderator.on_read(since_s=self._since_s)
            is_stream = turn.read_bytes >= BULK_BYTES and (turn.messages > 1 or expects_more)
            if is_stream or turn.sent_bytes >= BULK_BYTES:
                if pause_s := self._moderator.pause_s:
                    self.pause_until = self.read_at + pause_s
                    return DriverState.COALESCING
                if self._since_s < BUSY_S:
                    self.poll_s = POLL_S
            elif turn.events and self._since_s < self._adaptive_poll_s:
                self.poll_s = self._adaptive_poll_s
        return DriverState.YIELDED if yields else DriverState.WAITING
