"""By which way an ack goes back: over a path of ours, to the address of a path of the peer's.

Theory of operation. Nobody acknowledges acks, so their sender does not see which of them arrive.

1. By turns. Each ack leaves by another path of ours than the one before, and each path of ours meets each address: so
   some arrive, whatever links are dead. Were they sent from one port, the way back of a port would be given by the way
   there; and where most links are dead, all ports that arrive may have a dead way back.
2. As told. A probe tells the way of the last ack that arrived. Who probes waits for something, so for a while most acks
   go there, and some take turns, in case that it dies, too. Each path is reported more than once then, as a path that
   is not reported looks dead to its sender.

With three of four links dead, three acks of four are lost by turns, and paths that live are taken for dead with those
that are. `stall_rtts` of `scripts/bench blackhole`: by turns alone the median of 16 seeds was 3.1, and 8 were over 3;
as told it is 1.0 of 15, and 2 are. Those, to 4.5, are not the acks' fault: it is what was sent to dead paths again.
"""

from __future__ import annotations

from collections.abc import Sequence

AckPath = tuple[int, int]
"""Path of the ack's sender, path of its receiver."""

PREFERENCE_S = 0.5
"""How long a way that was told is preferred. Who is in trouble tells another before."""
ACKS_ON_PREFERRED = 3
"""Of so many acks and one, all but that one go the way that was told."""


class AckPathSelector:
    """`tell` what is known, ask for the `next`."""

    __slots__ = ("_paths", "_preferred", "_preferred_until", "_since_turn", "_turns")

    def __init__(self, *, paths: int) -> None:
        self._paths = paths
        self._turns = 0
        self._preferred: AckPath | None = None
        self._preferred_until = 0.0
        self._since_turn = 0  # acks that went as told

    def prefer(self, ack_path: AckPath, *, now: float) -> None:
        """Note that an ack has arrived by this way."""
        if ack_path[0] < self._paths:
            self._preferred, self._preferred_until = ack_path, now + PREFERENCE_S

    @property
    def preferred(self) -> bool:
        """Whether a way is preferred now."""
        return self._preferred is not None

    def select(self, remote_path: Sequence[int], *, now: float) -> AckPath:
        """Return the way of the next ack; by turns to one of `towards`, paths of the peer's, of which there is one."""
        if self._preferred is not None:
            if now >= self._preferred_until:
                self._preferred = None
            elif self._since_turn < ACKS_ON_PREFERRED:
                self._since_turn += 1
                return self._preferred
        self._since_turn = 0
        self._turns += 1
        round_, path = divmod(self._turns, self._paths)
        return path, remote_path[(path + round_) % len(remote_path)]
