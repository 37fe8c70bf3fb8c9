"""Ack path of the next ack: one of this end's paths, and the address of one of the peer's paths.

Theory of operation. Acks are not acknowledged, so their sender does not see which of them arrive.

1. Rotation. Each ack leaves on another local path than the one before, and each local path is combined with each
   address in turn, so that some acks arrive, whatever links are dead. If acks were sent from one port, the return path
   of an address would be determined by its forward path; and where most links are dead, all ports that reach this end
   may have a dead return path.
2. Preference. A probe carries an ack path that acks arrive over (see `paths.way_back`). Its sender waits for an answer,
   or has found that ways back differ much, so for a while most acks take that path, and some rotate, in case it dies
   too. Each path is then reported more than once, since a path that is not reported looks dead to its sender.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

AckPath = tuple[int, int]
"""Path of the ack's sender, path of its receiver."""

PREFERENCE_S: Final = 0.5
"""How long a reported ack path is preferred. A sender in trouble sends another probe before."""
ACKS_ON_PREFERRED: Final = 3
"""Acks on the preferred path between two that rotate."""


class AckPathSelector:
    """`prefer` an ack path that a probe reports; `select` the ack path of the next ack."""

    __slots__ = ("_paths", "_preferred", "_preferred_until", "_since_turn", "_turns")

    def __init__(self, *, paths: int) -> None:
        self._paths = paths
        self._turns = 0
        self._preferred: AckPath | None = None
        self._preferred_until = 0.0
        self._since_turn = 0  # acks on the preferred path since the last that rotated

    def prefer(self, ack_path: AckPath, *, now: float) -> None:
        """Note that an ack has arrived over this ack path."""
        if ack_path[0] < self._paths:
            self._preferred, self._preferred_until = ack_path, now + PREFERENCE_S

    @property
    def preferred(self) -> bool:
        """Whether an ack path is preferred now."""
        return self._preferred is not None

    def select(self, remote_path: Sequence[int], *, now: float) -> AckPath:
        """Return the ack path of the next ack; in rotation to one of `remote_path`, at least one path of the peer."""
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
