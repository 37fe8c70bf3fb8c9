"""Messages of this end that have not ended: by the caller's number, by message number, and by deadline.

All requests of a peer have the same time limit, so the first one posted is the first overdue. The limit counts from the
peer's first turn after the posting, which follows at once: posting itself needs no clock.
"""

from __future__ import annotations

from collections.abc import Sequence

from srd.proto.lazy_deque import LazyDeque
from srd.proto.send.inflight import WorkRequest
from srd.proto.wire.data import Opcode


class WorkRequestTable:
    """`add`, find and `remove` messages; `start_timers` of the new ones, find the `overdue` ones."""

    __slots__ = ("_by_message", "_by_request", "_timed", "_untimed")

    def __init__(self) -> None:
        self._by_request: dict[int, WorkRequest] = {}
        self._by_message: dict[int, WorkRequest] = {}
        self._untimed: list[WorkRequest] = []
        self._timed = LazyDeque[WorkRequest]()  # may contain some that have ended

    def __bool__(self) -> bool:
        """Whether a request of the caller is open."""
        return bool(self._by_request)

    @property
    def count(self) -> int:
        """How many requests of the caller are open; a batch is one."""
        return len(self._by_request)

    @property
    def open(self) -> list[WorkRequest]:
        """The open messages that are requests of the caller."""
        return list(self._by_request.values())

    @property
    def open_requests(self) -> list[int]:
        """The caller's numbers of the open requests."""
        return [name for wr in self._by_request.values() for name in wr.open_requests]

    def add(self, wr: WorkRequest) -> None:
        """Add a message. A RESPONSE has no request number, and no deadline but that of the READ."""
        self._by_message[wr.message] = wr
        if wr.request is not None:
            self._by_request[wr.request] = wr
            self._untimed.append(wr)

    def remove(self, wr: WorkRequest) -> None:
        """Remove a message that has ended."""
        wr.ended = True
        self._by_message.pop(wr.message, None)
        if wr.request is not None:
            self._by_request.pop(wr.request, None)

    def by_request(self, name: int) -> WorkRequest | None:
        """Return the open request of this number; a batch is found by its first."""
        return self._by_request.get(name)

    def by_message(self, message: int) -> WorkRequest | None:
        """Return the open message of this number."""
        return self._by_message.get(message)

    def using_key(self, local_key: int) -> list[WorkRequest]:
        """Return the open READs and RESPONSEs that use this registration of this end."""
        return [wr for wr in self._by_message.values() if wr.local_key == local_key]

    def started_sends(self) -> list[WorkRequest]:
        """Return the open sends that have a payload and of which some was packetized."""
        return [o for o in self._by_request.values() if o.opcode == Opcode.SEND and o.end_psn and o.length]

    def start_timers(self, *, deadline_at: float) -> Sequence[WorkRequest]:
        """Set the deadline of the requests added since and still open; return them."""
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
        """Return the requests whose deadline has passed."""
        found = []
        while (at := self.deadline_at) is not None and now >= at:
            found.append(self._timed.popleft())
        return found
