"""Messages of this end that have not ended: by the caller's name, by number, and by the time they must have ended.

All requests of a peer have the same bound, so the first posted is the first overdue. It is counted from the peer's
first turn after the posting, which follows at once: posting itself needs no clock.
"""

from __future__ import annotations

from collections.abc import Sequence

from srd.proto.fifo import Fifo
from srd.proto.sent import Outbound
from srd.proto.wire import Opcode


class Requests:
    """`add`, find, and `end` messages; `date` the new ones, ask which are `overdue`."""

    __slots__ = ("_by_message", "_by_name", "_dated", "_undated")

    def __init__(self) -> None:
        self._by_name: dict[int, Outbound] = {}
        self._by_message: dict[int, Outbound] = {}
        self._undated: list[Outbound] = []
        self._dated = Fifo[Outbound]()  # may hold some that have ended

    def __bool__(self) -> bool:
        """Whether a request of the caller's is open."""
        return bool(self._by_name)

    @property
    def count(self) -> int:
        """How many requests of the caller's are open; a batch is one."""
        return len(self._by_name)

    @property
    def open(self) -> list[Outbound]:
        """The open messages that are requests of the caller's."""
        return list(self._by_name.values())

    @property
    def names(self) -> list[int]:
        """The caller's names of the open requests."""
        return [name for outbound in self._by_name.values() for name in outbound.open_requests]

    def add(self, outbound: Outbound) -> None:
        """Take a message. What answers a read has no name, and no bound but the read's."""
        self._by_message[outbound.message] = outbound
        if outbound.request is not None:
            self._by_name[outbound.request] = outbound
            self._undated.append(outbound)

    def end(self, outbound: Outbound) -> None:
        """Forget a message."""
        outbound.ended = True
        self._by_message.pop(outbound.message, None)
        if outbound.request is not None:
            self._by_name.pop(outbound.request, None)

    def named(self, name: int) -> Outbound | None:
        """Return the open request of this name; a batch goes by its first."""
        return self._by_name.get(name)

    def numbered(self, message: int) -> Outbound | None:
        """Return the open message of this number."""
        return self._by_message.get(message)

    def using(self, local_key: int) -> list[Outbound]:
        """Return the open reads and answers that use this registration of our own."""
        return [outbound for outbound in self._by_message.values() if outbound.local_key == local_key]

    def started_sends(self) -> list[Outbound]:
        """Return the open sends of which some was sent, and that need memory."""
        return [o for o in self._by_name.values() if o.opcode == Opcode.SEND and o.end_psn and o.length]

    def date(self, *, deadline_at: float) -> Sequence[Outbound]:
        """Set the deadline of what was added since, and has not ended; return that."""
        if not self._undated:
            return ()
        new = [outbound for outbound in self._undated if not outbound.ended]
        self._undated.clear()
        for outbound in new:
            outbound.deadline_at = deadline_at
        self._dated.extend(new)
        return new

    @property
    def deadline_at(self) -> float | None:
        """When the next request is overdue."""
        while self._dated and self._dated[0].ended:
            self._dated.popleft()
        return self._dated[0].deadline_at if self._dated else None

    def overdue(self, *, now: float) -> list[Outbound]:
        """Return the requests whose time is up."""
        found = []
        while (at := self.deadline_at) is not None and now >= at:
            found.append(self._dated.popleft())
        return found
