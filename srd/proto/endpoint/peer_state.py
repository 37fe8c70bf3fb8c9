"""The states of a peer, what changes them, and which timers run in each.

OPENING --opened--> OPEN --close()--> DRAINING --all requests done--> CLOSING --CLOSED or retries spent--> ENDED
any --Close, Reset, Refuse, keepalive timeout--> ENDED, with every open request completed first
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final


class PeerState(Enum):
    """States of a peer."""

    OPENING = auto()
    OPEN = auto()
    DRAINING = auto()
    CLOSING = auto()
    ENDED = auto()


class PeerEvent(Enum):
    """What changes a peer's state."""

    OPENED = auto()
    """The handshake is complete."""
    CLOSE = auto()
    """The application closes the peer."""
    DRAINED = auto()
    """All of its requests are done."""
    END = auto()
    """It has ended, whether in an orderly way or not."""


TRANSITIONS: Final = {
    (PeerState.OPENING, PeerEvent.OPENED): PeerState.OPEN,
    (PeerState.OPENING, PeerEvent.END): PeerState.ENDED,
    (PeerState.OPEN, PeerEvent.CLOSE): PeerState.DRAINING,
    (PeerState.OPEN, PeerEvent.END): PeerState.ENDED,
    (PeerState.DRAINING, PeerEvent.DRAINED): PeerState.CLOSING,
    (PeerState.DRAINING, PeerEvent.END): PeerState.ENDED,
    (PeerState.CLOSING, PeerEvent.END): PeerState.ENDED,
}
"""The state that an event leads to; any other event leaves the state as it is."""


class Timer(Enum):
    """What a peer waits for."""

    HANDSHAKE = auto()
    """The next HELLO, or the end of the attempt to open the peer."""
    ACK = auto()
    """The next ack to be sent."""
    SEND = auto()
    """Loss detection, probes of paths, pacing, the time limit of requests."""
    REASSEMBLY = auto()
    """The time limit of incomplete messages."""
    KEEPALIVE = auto()
    """The next keepalive probe, or the end of an unresponsive peer."""
    CLOSE = auto()
    """The next CLOSE, or the end of its attempts."""


_RUNNING: Final = (Timer.ACK, Timer.SEND, Timer.REASSEMBLY, Timer.KEEPALIVE)
TIMERS: dict[PeerState, tuple[Timer, ...]] = {
    PeerState.OPENING: (Timer.HANDSHAKE,),
    PeerState.OPEN: _RUNNING,
    PeerState.DRAINING: (*_RUNNING, Timer.CLOSE),
    PeerState.CLOSING: (*_RUNNING, Timer.CLOSE),
    PeerState.ENDED: (),
}
"""The timers that run in each state."""
