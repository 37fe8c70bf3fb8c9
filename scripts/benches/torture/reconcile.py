"""Compares the journals of all workers of a scenario with each other, and with the contents of memory.

1. A request completes once. One that completed with OK was delivered once, if its receiver read to the end.
2. A delivered message was posted, once, with that length and immediate, and was not refused when it was posted.
3. Written and read bytes are at their target if the request completed with OK; all other bytes are unchanged. After an
   error only the request's own range is undefined (PROTOCOL.md, section 6).
4. Withdrawn memory does not change any more, and no request posted to it later completes with OK.
5. In a scenario without faults no request fails.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from scripts.benches.torture import layout
from scripts.benches.torture.connection import CANCELLED, NO_FLAW, RANGE_FLAW
from scripts.benches.torture.journal import JournalEntry, entries
from scripts.benches.torture.layout import GuardedMemory
from scripts.benches.torture.pattern import LANE_BYTES, SOURCE, Bytes, check
from scripts.benches.torture.result import TortureResult
from srd.proto.wire.status import Status

NEVER_DELIVERED: Final = frozenset(
    {
        Status.REMOTE_ERROR_BAD_LENGTH,
        Status.LOCAL_ERROR_BAD_LENGTH,
        Status.LOCAL_ERROR_INVALID_AH,
        Status.LOCAL_ERROR_UNSUPPORTED_OP,
        Status.LOCAL_ERROR_UNREACH_REMOTE,
        Status.REMOTE_ERROR_BAD_DEST_QPN,
    }
)
"""Statuses of messages that were not delivered. With all others only the ACK may have been lost."""
HARMLESS: Final = frozenset({Status.OK, Status.FLUSHED, Status.REMOTE_ERROR_RNR, CANCELLED})
"""Possible statuses of valid requests in a scenario without faults."""

Id = tuple[int, int]
"""(connection, message)."""


@dataclass(slots=True)
class PostedRequest:
    """A request in the journal of its sender."""

    kind: str
    length: int
    immediate: int | None
    at: float
    memory: str = ""
    """WRITE: the target file; READ: the file that it lands in."""
    offset: int = 0
    source_incarnation: int = 0
    source_offset: int = 0
    flaw: int = NO_FLAW
    status: int | None = None
    cancelled: bool = False


@dataclass(slots=True)
class Observations:
    """The contents of all journals."""

    posted: dict[Id, PostedRequest] = field(default_factory=dict)
    deliveries: Counter[Id] = field(default_factory=Counter)
    notifications: Counter[tuple[int, int]] = field(default_factory=Counter)
    """(connection, offset in its memory) -> number of notifications."""
    receiver_of: dict[int, int] = field(default_factory=dict)
    """Connection -> incarnation of the receiver."""
    killed: set[tuple[int, int]] = field(default_factory=set)
    """(worker, incarnation) of workers that were killed: their journal has no end."""
    closed: set[int] = field(default_factory=set)
    """Connections that the receiver closed, and so did not read to the end."""
    replies_sent: dict[Id, tuple[int, int | None]] = field(default_factory=dict)
    """Replies of the receiver: length and status."""
    replies_received: Counter[Id] = field(default_factory=Counter)
    withdrawn: dict[str, float] = field(default_factory=dict)
    withdrawing: set[str] = field(default_factory=set)


def short(length: int) -> bool:
    """Whether a message is too short to carry its number; in a batch all such have the number of the first."""
    return length < LANE_BYTES


def shares_number(number: int, posted: PostedRequest) -> bool:
    """Whether a message of a batch may be delivered under the number of others."""
    return short(posted.length) or number == posted.immediate


class Reconciler:
    """`read` every journal, then `reconcile`."""

    def __init__(self, result: TortureResult, directory: Path) -> None:
        """Add what disagrees to `result`."""
        self.result = result
        self.observed = Observations()
        self._scenario = result.scenario
        self._directory = directory
        self._of_memory: dict[str, dict[Id, PostedRequest]] = defaultdict(dict)

    # -- reading ----------------------------------------------------------------------------------------------------

    def read(self, worker: int, *, incarnation: int) -> None:
        """Read the journal of a worker."""
        done = False
        for entry in entries(self._directory / layout.journal_name(worker, incarnation=incarnation)):
            done |= entry.kind == "done"
            handler = getattr(self, f"_on_{entry.kind}", None)
            if handler is not None:
                handler(entry, incarnation)
        if not done:
            self.observed.killed.add((worker, incarnation))

    def _on_wrong(self, entry: JournalEntry, _incarnation: int) -> None:
        self.result.wrong.append(str(entry.values[0]))

    def _on_hang(self, entry: JournalEntry, _incarnation: int) -> None:
        self.result.hangs.append(str(entry.values[0]))

    def _on_send(self, entry: JournalEntry, _incarnation: int) -> None:
        connection, number, length, immediate = entry.values
        self._post(connection, number, PostedRequest("send", length, immediate, entry.at))

    def _on_batch(self, entry: JournalEntry, _incarnation: int) -> None:
        connection, first, lengths, immediate = entry.values
        for index, length in enumerate(lengths):
            self._post(connection, first + index, PostedRequest("batch", length, immediate, entry.at))

    def _on_write(self, entry: JournalEntry, _incarnation: int) -> None:
        connection, number, length, memory, offset, immediate, flaw = entry.values
        self._post(connection, number, PostedRequest("write", length, immediate, entry.at, memory, offset, flaw=flaw))

    def _on_read(self, entry: JournalEntry, _incarnation: int) -> None:
        connection, number, length, source_incarnation, source_offset, offset, flaw = entry.values
        sender, incarnation = layout.sender_of(connection), layout.incarnation_of(connection)
        memory = layout.reads(sender, incarnation=incarnation, size_bytes=layout.READS_BYTES).name
        self._post(
            connection,
            number,
            PostedRequest("read", length, None, entry.at, memory, offset, source_incarnation, source_offset, flaw),
        )

    def _post(self, connection: int, number: int, posted: PostedRequest) -> None:
        if (connection, number) in self.observed.posted:
            self.result.disagreements.append(
                f"request {number} of connection {connection} was posted twice: a bug of the bench"
            )
        self.observed.posted[connection, number] = posted
        if posted.memory:
            self._of_memory[posted.memory][connection, number] = posted
        self.result.requests += 1
        self.result.posted_bytes += posted.length

    def _on_cancel(self, entry: JournalEntry, _incarnation: int) -> None:
        connection, number = entry.values
        self.observed.posted[connection, number].cancelled = True

    def _on_unposted(self, entry: JournalEntry, _incarnation: int) -> None:
        connection, first, count, _why = entry.values
        for number in range(first, first + count):
            posted = self.observed.posted.pop((connection, number))
            self._of_memory[posted.memory].pop((connection, number), None)

    def _on_end(self, entry: JournalEntry, _incarnation: int) -> None:
        connection, first, count, status = entry.values
        for number in range(first, first + count):
            posted = self.observed.posted[connection, number]
            if posted.status is not None:
                self.result.disagreements.append(f"request {number} of connection {connection} completed twice")
            posted.status = status

    def _on_received(self, entry: JournalEntry, incarnation: int) -> None:
        connection, number, length, immediate = entry.values
        self._deliver(connection, [number], length, immediate, incarnation)

    def _on_received_batch(self, entry: JournalEntry, incarnation: int) -> None:
        connection, numbers, length, immediate = entry.values
        self._deliver(connection, numbers, length, immediate, incarnation)

    def _deliver(
        self, connection: int, numbers: Iterable[int], length: int, immediate: int | None, incarnation: int
    ) -> None:
        observed = self.observed
        if observed.receiver_of.setdefault(connection, incarnation) != incarnation:
            self.result.disagreements.append(f"connection {connection} reached two incarnations of the receiver")
        for number in numbers:
            observed.deliveries[connection, number] += 1
            posted = observed.posted.get((connection, number))
            if posted is None:
                if (layout.sender_of(connection), layout.incarnation_of(connection)) not in observed.killed:
                    self.result.disagreements.append(
                        f"message {number} of connection {connection} was delivered, but never posted"
                    )
            elif posted.kind not in ("send", "batch") or posted.immediate != immediate:
                self.result.disagreements.append(
                    f"message {number} of connection {connection} arrived with immediate {immediate}: "
                    f"it is a {posted.kind} with {posted.immediate}"
                )
            elif posted.length != length and posted.kind == "send":
                self.result.disagreements.append(
                    f"message {number} of connection {connection} has {posted.length} bytes, but arrived with {length}"
                )

    def _on_received_write(self, entry: JournalEntry, incarnation: int) -> None:
        connection, offset, _length = entry.values
        self.observed.receiver_of.setdefault(connection, incarnation)
        self.observed.notifications[connection, offset] += 1

    def _on_closing(self, entry: JournalEntry, _incarnation: int) -> None:
        self.observed.closed.add(entry.values[0])

    def _on_reply(self, entry: JournalEntry, _incarnation: int) -> None:
        connection, number, length = entry.values
        self.observed.replies_sent[connection, number] = (length, None)

    def _on_reply_end(self, entry: JournalEntry, _incarnation: int) -> None:
        connection, number, status = entry.values
        self.observed.replies_sent[connection, number] = (self.observed.replies_sent[connection, number][0], status)

    def _on_received_reply(self, entry: JournalEntry, _incarnation: int) -> None:
        connection, number, _length = entry.values
        self.observed.replies_received[connection, number] += 1

    def _on_withdrawing(self, entry: JournalEntry, _incarnation: int) -> None:
        self.observed.withdrawing.add(entry.values[0])

    def _on_withdrawn(self, entry: JournalEntry, _incarnation: int) -> None:
        self.observed.withdrawn[entry.values[0]] = entry.at

    # -- reconciling --------------------------------------------------------------------------------------------------

    def reconcile(self) -> None:
        """Compare everything."""
        observed = self.observed
        for (connection, number), posted in observed.posted.items():
            for disagreement in self._check_request(connection, number, posted):
                self.result.disagreements.append(
                    f"{posted.kind} {number} of connection {connection}, {posted.length} bytes: {disagreement}"
                )
        self.result.disagreements += self._check_short_batches()
        for (connection, number), times in observed.replies_received.items():
            if times > 1 or (connection, number) not in observed.replies_sent:
                self.result.disagreements.append(f"reply {number} over connection {connection} arrived {times} times")
        for memory in self._memories():
            self._check_memory(memory)

    def _check_request(self, connection: int, number: int, posted: PostedRequest) -> Iterator[str]:
        sender = (layout.sender_of(connection), layout.incarnation_of(connection))
        if posted.status is None:
            if sender not in self.observed.killed:
                yield "it did not complete"
            return
        if posted.flaw and posted.status == Status.OK:
            yield "it must be refused, but completed with OK"
        if posted.status not in HARMLESS and self._scenario.fault_free and not posted.flaw:
            yield f"it ended without any fault with {Status(posted.status).name}"
        if posted.status == Status.OK and posted.at > self.observed.withdrawn.get(posted.memory, math.inf):
            yield "it was posted after the memory was withdrawn, but completed with OK"
        if posted.kind == "send" or (posted.kind == "batch" and not shares_number(number, posted)):
            yield from self._check_delivery(connection, posted, self.observed.deliveries[connection, number])
        if posted.kind == "write" and posted.immediate is not None:
            yield from self._check_delivery(connection, posted, self.observed.notifications[connection, posted.offset])

    def _check_delivery(self, connection: int, posted: PostedRequest, times: int) -> Iterator[str]:
        if times > 1:
            yield f"it was delivered {times} times"
        if posted.status == Status.OK and not times and self._receiver_read_all(connection):
            yield "it completed with OK, but was not delivered"
        if times and posted.status in NEVER_DELIVERED:
            yield f"it ended with {Status(posted.status or 0).name}, but was delivered"

    def _receiver_read_all(self, connection: int) -> bool:
        """Whether the receiver read all messages of a connection."""
        incarnation = self.observed.receiver_of.get(connection)
        if connection in self.observed.closed:
            return False
        if incarnation is None:  # a killed receiver may have read it
            return not any(each == 0 for each, _ in self.observed.killed)
        return (0, incarnation) not in self.observed.killed

    def _check_short_batches(self) -> Iterator[str]:
        """Check the number of deliveries of short messages: all of a batch have the number of the first."""
        wanted: dict[Id, list[PostedRequest]] = defaultdict(list)
        for (connection, _), posted in self.observed.posted.items():
            if posted.kind == "batch" and short(posted.length) and posted.immediate is not None:
                wanted[connection, posted.immediate].append(posted)
        for (connection, first), batch in wanted.items():
            itself = self.observed.posted[connection, first]
            longer = 0 if short(itself.length) else 1  # the first message, if it carries its number
            good = sum(posted.status == Status.OK for posted in batch)
            times = self.observed.deliveries[connection, first] - min(
                longer, self.observed.deliveries[connection, first]
            )
            if times > len(batch):
                yield f"batch {first} of connection {connection}: {len(batch)} short messages arrived {times} times"
            if times < good - longer and self._receiver_read_all(connection):
                yield f"batch {first} of connection {connection}: {good} short messages were OK, {times} arrived"

    # -- memory -----------------------------------------------------------------------------------------------------

    def _memories(self) -> Iterator[GuardedMemory]:
        scenario = self._scenario
        for sender in range(1, len(scenario.senders) + 1):
            size = layout.target_bytes(scenario.senders[sender - 1].giant_bytes)
            for incarnation in range(scenario.incarnations(sender)):
                yield layout.reads(sender, incarnation=incarnation, size_bytes=layout.READS_BYTES)
                for receiver_incarnation in range(scenario.incarnations(0)):
                    yield layout.target(
                        sender, incarnation=incarnation, receiver_incarnation=receiver_incarnation, size_bytes=size
                    )
        for receiver_incarnation in range(scenario.incarnations(0)):
            yield layout.source(receiver_incarnation, size_bytes=layout.SOURCE_BYTES)

    def _check_memory(self, memory: GuardedMemory) -> None:
        """Check every byte of a file, if its worker created it."""
        path = memory.path(self._directory)
        if not path.exists() or path.stat().st_size < memory.size_bytes:
            return
        found = np.memmap(path, np.uint8, "r")[: memory.size_bytes]
        at = 0
        for start, end in sorted(self._used(memory)):
            self._check_untouched(memory, found, at, start)
            at = max(at, end)
        self._check_untouched(memory, found, at, memory.size_bytes)
        for (connection, number), posted in self._of_memory.get(memory.name, {}).items():
            if posted.status == Status.OK and memory.name not in self.observed.withdrawing:
                self._check_landed(memory, found, connection, number, posted)
        if memory.name in self.observed.withdrawn:
            self._check_withdrawn(memory, found)

    def _used(self, memory: GuardedMemory) -> Iterator[tuple[int, int]]:
        """Yield the ranges (start, end) that requests may have changed."""
        for posted in self._of_memory.get(memory.name, {}).values():
            if posted.flaw == NO_FLAW:
                yield posted.offset, posted.offset + posted.length
            elif posted.flaw == RANGE_FLAW and posted.kind == "write":
                yield posted.offset, _end_of_range(memory, posted.offset)

    def _check_untouched(self, memory: GuardedMemory, found: Bytes, start: int, end: int) -> None:
        if start >= end:
            return
        if wrong := check(
            found[start:end], self._scenario.seed, owner=memory.owner, message=memory.number, offset=start
        ):
            self.result.wrong.append(f"{memory.name}, outside of all requests: {wrong}")

    def _check_landed(
        self, memory: GuardedMemory, found: Bytes, connection: int, number: int, posted: PostedRequest
    ) -> None:
        piece, seed = found[posted.offset : posted.offset + posted.length], self._scenario.seed
        if posted.kind == "write":
            wrong = check(piece, seed, owner=connection, message=number)
        else:
            wrong = check(piece, seed, owner=SOURCE, message=posted.source_incarnation, offset=posted.source_offset)
        if wrong:
            self.result.wrong.append(
                f"{memory.name}: {posted.kind} {number} of connection {connection}, {posted.length} bytes at "
                f"{posted.offset}, completed with OK: {wrong}"
            )

    def _check_withdrawn(self, memory: GuardedMemory, found: Bytes) -> None:
        before = np.memmap(self._directory / f"{memory.name}.withdrawn", np.uint8, "r")[: memory.size_bytes]
        changed = np.flatnonzero(before != found)
        if len(changed):
            self.result.wrong.append(
                f"{memory.name}: bytes {changed[0]} to {changed[-1]} ({len(changed)}) changed after it was withdrawn"
            )


def _end_of_range(memory: GuardedMemory, offset: int) -> int:
    """Return the end of the registered range that contains `offset`, or `offset` if none does."""
    return next((at + size for at, size in memory.ranges if at <= offset <= at + size), offset)


def leftovers(path: Path) -> Iterator[tuple[int, int, list[Any]]]:
    """Yield what a worker had not released at its end: growth of anonymous memory, bytes of regions, descriptors."""
    for entry in entries(path):
        if entry.kind == "left":
            anonymous, regions, descriptors = entry.values
            yield anonymous, regions, descriptors
