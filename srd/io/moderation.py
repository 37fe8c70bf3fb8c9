"""Moderation: how long an endpoint pauses between two turns of a stream, so that one wake-up serves several packets.

Theory of operation. A wake-up costs an interpreter more than a packet does. A network card has the same problem with
interrupts, and delays them by a time that follows the rate of the packets (adaptive interrupt moderation: `ethtool -C
adaptive-rx`, net_dim in Linux). So does this module.

1. A pause is the time in which `BATCH_BYTES` pass at the measured rate, and at most `MAX_PAUSE_S`. It begins when the
   turn's reading ends, so the time that the turn itself takes is part of it.
2. A pause shorter than `MIN_PAUSE_S` is not made: to sleep and to wake up takes as long. At such a rate the next
   packets arrive before the endpoint has gone to sleep, so it polls for `POLL_S` instead.
3. The rate is what passed in either direction between two turns that read, the smoothed bytes over the smoothed time:
   data for a receiver; for a sender, what the ACKs released. A gap of `BUSY_S` begins a new stream, whose rate is not
   known yet: no pause.
"""

from __future__ import annotations

from typing import Final

BATCH_BYTES: Final = 64 << 10
"""What a wake-up should serve: one segment train. The first of a batch waits for the rest of it."""
MAX_PAUSE_S: Final = 0.0003
"""Longest pause: at 1 Gbit/s four packets of 9,000 bytes pass in it. A longer one adds more delay than it saves CPU
time."""
MIN_PAUSE_S: Final = 0.00005
"""Shortest pause: about what it takes to sleep and to wake up on a virtual CPU."""
POLL_S: Final = 0.00005
"""How long a stream without pauses polls before it sleeps; as long as the sleep would cost."""
BUSY_S: Final = 0.001
"""Two turns that are further apart do not belong to one stream."""
GAIN: Final = 1 / 4
"""Weight of the latest turn in the rate, which so follows a stream within some ten turns."""


class Moderator:
    """`carry` what each turn reads and sends; call `on_read` after one that read, then `pause_s` in a stream."""

    __slots__ = ("_bytes", "_carried_bytes", "_seconds")

    def __init__(self) -> None:
        self._carried_bytes = 0  # since the last turn that read
        self._bytes = 0.0  # smoothed: carried between two turns that read
        self._seconds = 0.0  # smoothed: time between them

    def carry(self, size_bytes: int) -> None:
        """Note payload that a turn has read or sent."""
        self._carried_bytes += size_bytes

    def on_read(self, *, since_s: float) -> None:
        """Note the end of a turn that read, `since_s` after the one before."""
        carried_bytes, self._carried_bytes = self._carried_bytes, 0
        if since_s >= BUSY_S:
            self._bytes = self._seconds = 0.0
            return
        self._bytes += (carried_bytes - self._bytes) * GAIN
        self._seconds += (since_s - self._seconds) * GAIN

    @property
    def pause_s(self) -> float:
        """The pause after a turn of a stream, from its reading on; 0: none, as too much or too little passes."""
        if not self._bytes:
            return 0.0
        pause_s = min(BATCH_BYTES * self._seconds / self._bytes, MAX_PAUSE_S)
        return pause_s if pause_s >= MIN_PAUSE_S else 0.0
