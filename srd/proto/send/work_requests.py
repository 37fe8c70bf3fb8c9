"""Messages of this end that have not ended: by the caller's name, by number, and by the time they must have ended.

All requests of a peer have the same bound, so the first posted is the first overdue. It is counted from the peer's
first turn after the posting, which follows at once: posting itself needs no clock.
"""

from __future__ import annotations

from collections.abc import Sequence

from srd.proto.lazy_deque import LazyDeque
from srd.proto.send.inflight import WorkRequest
from srd.proto.wire.data import Opcode


class WorkRequestTable:
    """`add`, find, and `end` messages; `date` the new ones, ask which are `overdue`."""

    __slots__ = ("_by_message", "_by_request", "_timed", "_untimed")

    def __init__(self) -> None:
        self._by_request: dict[int, WorkRequest] = {}
        self._by_message: dict[int, WorkRequest] = {}
        self._untimed: list[WorkRequest] = []
        self._timed = LazyDeque[WorkRequest]()  # may hold some that have ended

    def __bool__(self) -> bool:
        """Whether a request of the caller's is open."""
        return bool(self._by_request)

    @property
    def count(self) -> int:
        """How many requests of the caller's are open; a batch is one."""
        return len(self._by_request)

    @property
    def open(self) -> list[WorkRequest]:
        """The open messages that are requests of the caller's."""
        return list(self._by_request.values())

    @property
    def open_requests(self) -> list[int]:
        """The caller's names of the open requests."""
        return [name for wr in self._by_request.values() for name in wr.open_requests]

    def add(self, wr: WorkRequest) -> None:
        """Take a message. What answers a read has no name, and no bound but the read's."""
        self._by_message[wr.message] = wr
        if wr.request is not None:
            self._by_request[wr.request] = wr
            self._untimed.append(wr)

    def remove(self, wr: WorkRequest) -> None:
        """Forget a message."""
        wr.ended = True
        self._by_message.pop(wr.message, None)
        if wr.request is not None:
            self._by_request.pop(wr.request, None)

    def by_request(self, name: int) -> WorkRequest | None:
        """Return the open request of this name; a batch goes by its first."""
        return self._by_request.get(name)

    def by_message(self, message: int) -> WorkRequest | None:
        """Return the open message of this number."""
        return self._by_message.get(message)

    def using_key(self, local_key: int) -> list[WorkRequest]:
        """Return the open reads and answers that use this registration of our own."""
        return [wr for wr in self._by_message.values() if wr.local_key == local_key]

    def started_sends(self) -> list[WorkRequest]:
        """Return the open sends of which some was sent, and that need memory."""
        return [o for o in self._by_request.values() if o.opcode == Opcode.SEND and o.end_psn and o.length]

    def start_timers(self, *, deadline_at: float) -> Sequence[WorkRequest]:
        """Set the deadline of what was added since, and has not ended; return that."""
        if not self._untimed:
            return ()
        new = [wr for wr in self._untimed if not wr.ended]
        self._untimed.clear()
        for wr in new:
            wr.deadline_at = deadline_at
        self._timed.extend(new)
        return new

    @property
    def deadline_at(self) -> float | None:
        """When the next request is overdue."""
        while self._timed and self._timed[0].ended:
            self._timed.popleft()
        return self._timed[0].deadline_at if self._timed else None

    def overdue(self, *, now: float) -> list[WorkRequest]:
        """Return the requests whose time is up."""
        found = []
        while (at := self.deadline_at) is not None and now >= at:
            found.append(self._timed.popleft())
        return found
