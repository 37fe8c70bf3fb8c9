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


@dataclass(slots=True)
class Observations:
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
    replies_sent: set[Id] = field(default_factory=set)
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
        self.result = result
        self.observed = Observations()
        self._scenario = result.scenario
        self._directory = directory
        self._of_memory: dict[str, dict[Id, PostedRequest]] = defaultdict(dict)

    # -- reading ----------------------------------------------------------------------------------------------------

    def read(self, worker: int, *, incarnation: int) -> None:
        done = False
        for entry in entries(self._directory / layout.journal_name(worker, incarnation=incarnation)):
            done |= entry.kind == "done"
            self._read_result(entry)
            self._read_of_sender(entry)
            self._read_of_receiver(entry, incarnation)
        if not done:
            self.observed.killed.add((worker, incarnation))

    def _read_of_sender(self, entry: JournalEntry) -> None:
        posted = self.observed.posted
        match entry.kind, *entry.values:
            case "send", connection, number, length, immediate:
                self._post((connection, number), PostedRequest("send", length, immediate, entry.at))
            case "batch", connection, first, lengths, immediate:
                for index, length in enumerate(lengths):
                    self._post((connection, first + index), PostedRequest("batch", length, immediate, entry.at))
            case "write", connection, number, length, memory, offset, immediate, flaw:
                request = PostedRequest("write", length, immediate, entry.at, memory, offset, flaw=flaw)
                self._post((connection, number), request)
            case "read", connection, number, length, source_incarnation, source_offset, offset, flaw:
                worker, incarnation = layout.sender_of(connection), layout.incarnation_of(connection)
                memory = layout.reads(worker, incarnation=incarnation, size_bytes=layout.READS_BYTES).name
                source = (source_incarnation, source_offset)
                self._post(
                    (connection, number), PostedRequest("read", length, None, entry.at, memory, offset, *source, flaw)
                )
            case "unposted", connection, first, count, _:
                for number in range(first, first + count):
                    self._of_memory[posted.pop((connection, number)).memory].pop((connection, number), None)
            case "end", connection, first, count, status:
                for number in range(first, first + count):
                    if posted[connection, number].status is not None:
                        self._disagree(f"request {number} of connection {connection} completed twice")
                    posted[connection, number].status = status

    def _read_of_receiver(self, entry: JournalEntry, incarnation: int) -> None:
        observed = self.observed
        match entry.kind, *entry.values:
            case "received", connection, number, length, immediate:
                self._deliver(connection, [number], length, immediate, incarnation)
            case "received_batch", connection, numbers, length, immediate:
                self._deliver(connection, numbers, length, immediate, incarnation)
            case "received_write", connection, offset, _:
                observed.receiver_of.setdefault(connection, incarnation)
                observed.notifications[connection, offset] += 1
            case "reply", connection, number, _:
                observed.replies_sent.add((connection, number))
            case "closing", connection:
                observed.closed.add(connection)
            case "withdrawing", memory:
                observed.withdrawing.add(memory)
            case "withdrawn", memory:
                observed.withdrawn[memory] = entry.at

    def _read_result(self, entry: JournalEntry) -> None:
        match entry.kind, *entry.values:
            case "wrong", what:
                self.result.wrong.append(what)
            case "hang", what:
                self.result.hangs.append(what)
            case "received_reply", connection, number, _:
                self.observed.replies_received[connection, number] += 1

    def _disagree(self, what: str) -> None:
        self.result.disagreements.append(what)

    def _post(self, of: Id, posted: PostedRequest) -> None:
        if of in self.observed.posted:
            self._disagree(f"request {of[1]} of connection {of[0]} was posted twice: a bug of the bench")
        self.observed.posted[of] = posted
        if posted.memory:
            self._of_memory[posted.memory][of] = posted
        self.result.requests += 1
        self.result.posted_bytes += posted.length

    def _deliver(
        self, connection: int, numbers: Iterable[int], length: int, immediate: int | None, incarnation: int
    ) -> None:
        observed = self.observed
        if observed.receiver_of.setdefault(connection, incarnation) != incarnation:
            self._disagree(f"connection {connection} reached two incarnations of the receiver")
        for number in numbers:
            observed.deliveries[connection, number] += 1
            posted, message = observed.posted.get((connection, number)), f"message {number} of connection {connection}"
            if posted is None:
                if (layout.sender_of(connection), layout.incarnation_of(connection)) not in observed.killed:
                    self._disagree(f"{message} was delivered, but never posted")
            elif posted.kind not in ("send", "batch") or posted.immediate != immediate:
                it = f"it is a {posted.kind} with {posted.immediate}"
                self._disagree(f"{message} arrived with immediate {immediate}: {it}")
            elif posted.length != length and posted.kind == "send":
                self._disagree(f"{message} has {posted.length} bytes, but arrived with {length}")

    # -- reconciling --------------------------------------------------------------------------------------------------

    def reconcile(self) -> None:
        observed = self.observed
        for (connection, number), posted in observed.posted.items():
            for disagreement in self._check_request(connection, number, posted):
                self._disagree(
                    f"{posted.kind} {number} of connection {connection}, {posted.length} bytes: {disagreement}"
                )
        self.result.disagreements += self._check_short_batches()
        for (connection, number), times in observed.replies_received.items():
            if times > 1 or (connection, number) not in observed.replies_sent:
                self._disagree(f"reply {number} over connection {connection} arrived {times} times")
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
