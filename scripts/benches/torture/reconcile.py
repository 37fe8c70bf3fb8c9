"""Compares all journals of a scenario with each other, and with the contents of memory.

1. A request completes once. One that completed with OK was delivered once, if its receiver kept reading.
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
from scripts.benches.torture.journal import Entry, entries
from scripts.benches.torture.layout import Memory
from scripts.benches.torture.pattern import LANE_BYTES, SOURCE, Bytes, check
from scripts.benches.torture.plans import Scenario
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
"""With these a message cannot have been taken. With all others only its acknowledgement may have been lost."""
HARMLESS: Final = frozenset({Status.OK, Status.FLUSHED, Status.REMOTE_ERROR_RNR, CANCELLED})
"""How requests may end where nothing goes wrong."""

Id = tuple[int, int]
"""(connection, message)."""


@dataclass(slots=True)
class Posted:
    """A request, as its sender noted it."""

    kind: str
    length: int
    immediate: int | None
    at: float
    memory: str = ""
    """WRITE: the file that it went to; READ: the file that it lands in."""
    offset: int = 0
    source_incarnation: int = 0
    source_offset: int = 0
    flaw: int = NO_FLAW
    status: int | None = None
    cancelled: bool = False


@dataclass(slots=True)
class Observations:
    """What all processes noted."""

    posted: dict[Id, Posted] = field(default_factory=dict)
    got: Counter[Id] = field(default_factory=Counter)
    got_writes: Counter[tuple[int, int]] = field(default_factory=Counter)
    """(connection, offset in its memory) -> number of notifications."""
    receiver_of: dict[int, int] = field(default_factory=dict)
    """Connection -> incarnation of the receiver that had it."""
    killed: set[tuple[int, int]] = field(default_factory=set)
    """(who, incarnation) of processes that did not come to their end by themselves."""
    closed: set[int] = field(default_factory=set)
    """Connections that the receiver closed: it reads no more of them."""
    answers: dict[Id, tuple[int, int | None]] = field(default_factory=dict)
    """Of what the receiver sent back: length and status."""
    replies: Counter[Id] = field(default_factory=Counter)
    withdrawn: dict[str, float] = field(default_factory=dict)
    withdrawing: set[str] = field(default_factory=set)
    problems: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    """Wrong bytes."""
    hangs: list[str] = field(default_factory=list)
    requests: int = 0
    posted_bytes: int = 0


def short(length: int) -> bool:
    """Whether a message is too short to carry its number; in a batch, all such have the first one's number."""
    return length < LANE_BYTES


def shares_number(number: int, posted: Posted) -> bool:
    """Whether a message of a batch may be delivered under the number of others."""
    return short(posted.length) or number == posted.immediate


class Reconciler:
    """`read` every journal, then `reconcile`."""

    def __init__(self, scenario: Scenario, directory: Path) -> None:
        self.observed = Observations()
        self._scenario = scenario
        self._directory = directory
        self._of_memory: dict[str, dict[Id, Posted]] = defaultdict(dict)

    # -- reading ----------------------------------------------------------------------------------------------------

    def read(self, who: int, *, incarnation: int) -> None:
        """Take a journal."""
        done = False
        for entry in entries(self._directory / layout.journal_name(who, incarnation=incarnation)):
            done |= entry.kind == "done"
            handler = getattr(self, f"_on_{entry.kind}", None)
            if handler is not None:
                handler(entry, incarnation)
        if not done:
            self.observed.killed.add((who, incarnation))

    def _on_wrong(self, entry: Entry, _incarnation: int) -> None:
        self.observed.wrong.append(str(entry.values[0]))

    def _on_hang(self, entry: Entry, _incarnation: int) -> None:
        self.observed.hangs.append(str(entry.values[0]))

    def _on_send(self, entry: Entry, _incarnation: int) -> None:
        who, number, length, immediate = entry.values
        self._post(who, number, Posted("send", length, immediate, entry.at))

    def _on_batch(self, entry: Entry, _incarnation: int) -> None:
        who, first, lengths, immediate = entry.values
        for index, length in enumerate(lengths):
            self._post(who, first + index, Posted("batch", length, immediate, entry.at))

    def _on_write(self, entry: Entry, _incarnation: int) -> None:
        who, number, length, memory, offset, immediate, flaw = entry.values
        self._post(who, number, Posted("write", length, immediate, entry.at, memory, offset, flaw=flaw))

    def _on_read(self, entry: Entry, _incarnation: int) -> None:
        who, number, length, source_incarnation, source_offset, offset, flaw = entry.values
        sender, incarnation = layout.sender_of(who), layout.incarnation_of(who)
        memory = layout.reads(sender, incarnation=incarnation, size_bytes=layout.READS_BYTES).name
        self._post(
            who, number, Posted("read", length, None, entry.at, memory, offset, source_incarnation, source_offset, flaw)
        )

    def _post(self, who: int, number: int, posted: Posted) -> None:
        if (who, number) in self.observed.posted:
            self.observed.problems.append(f"request {number} of connection {who} was noted twice: the bench is wrong")
        self.observed.posted[who, number] = posted
        if posted.memory:
            self._of_memory[posted.memory][who, number] = posted
        self.observed.requests += 1
        self.observed.posted_bytes += posted.length

    def _on_cancel(self, entry: Entry, _incarnation: int) -> None:
        who, number = entry.values
        self.observed.posted[who, number].cancelled = True

    def _on_unposted(self, entry: Entry, _incarnation: int) -> None:
        who, first, count, _why = entry.values
        for number in range(first, first + count):
            posted = self.observed.posted.pop((who, number))
            self._of_memory[posted.memory].pop((who, number), None)

    def _on_end(self, entry: Entry, _incarnation: int) -> None:
        who, first, count, status = entry.values
        for number in range(first, first + count):
            posted = self.observed.posted[who, number]
            if posted.status is not None:
                self.observed.problems.append(f"request {number} of connection {who} ended twice")
            posted.status = status

    def _on_got(self, entry: Entry, incarnation: int) -> None:
        who, number, length, immediate = entry.values
        self._deliver(who, [number], length, immediate, incarnation)

    def _on_got_batch(self, entry: Entry, incarnation: int) -> None:
        who, numbers, length, immediate = entry.values
        self._deliver(who, numbers, length, immediate, incarnation)

    def _deliver(self, who: int, numbers: Iterable[int], length: int, immediate: int | None, incarnation: int) -> None:
        observed = self.observed
        if observed.receiver_of.setdefault(who, incarnation) != incarnation:
            observed.problems.append(f"connection {who} reached two incarnations of the receiver")
        for number in numbers:
            observed.got[who, number] += 1
            posted = observed.posted.get((who, number))
            if posted is None:
                if (layout.sender_of(who), layout.incarnation_of(who)) not in observed.killed:
                    observed.problems.append(f"message {number} of connection {who} was delivered, and never posted")
            elif posted.kind not in ("send", "batch") or posted.immediate != immediate:
                observed.problems.append(
                    f"message {number} of connection {who} came with immediate {immediate}: it is a {posted.kind} "
                    f"with {posted.immediate}"
                )
            elif posted.length != length and posted.kind == "send":
                observed.problems.append(
                    f"message {number} of connection {who} has {posted.length} bytes, and came with {length}"
                )

    def _on_got_write(self, entry: Entry, incarnation: int) -> None:
        who, offset, _length = entry.values
        self.observed.receiver_of.setdefault(who, incarnation)
        self.observed.got_writes[who, offset] += 1

    def _on_closing(self, entry: Entry, _incarnation: int) -> None:
        self.observed.closed.add(entry.values[0])

    def _on_answer(self, entry: Entry, _incarnation: int) -> None:
        who, number, length = entry.values
        self.observed.answers[who, number] = (length, None)

    def _on_answer_end(self, entry: Entry, _incarnation: int) -> None:
        who, number, status = entry.values
        self.observed.answers[who, number] = (self.observed.answers[who, number][0], status)

    def _on_reply(self, entry: Entry, _incarnation: int) -> None:
        who, number, _length = entry.values
        self.observed.replies[who, number] += 1

    def _on_withdrawing(self, entry: Entry, _incarnation: int) -> None:
        self.observed.withdrawing.add(entry.values[0])

    def _on_withdrawn(self, entry: Entry, _incarnation: int) -> None:
        self.observed.withdrawn[entry.values[0]] = entry.at

    # -- reconciling --------------------------------------------------------------------------------------------------

    def reconcile(self) -> Observations:
        """Compare everything."""
        observed = self.observed
        for (who, number), posted in observed.posted.items():
            for problem in self._of_request(who, number, posted):
                observed.problems.append(
                    f"{posted.kind} {number} of connection {who}, {posted.length} bytes: {problem}"
                )
        observed.problems += self._of_short_batches()
        for (who, number), times in observed.replies.items():
            if times > 1 or (who, number) not in observed.answers:
                observed.problems.append(f"reply {number} over connection {who} came {times} times")
        for memory in self._memories():
            self._check_memory(memory)
        return observed

    def _of_request(self, who: int, number: int, posted: Posted) -> Iterator[str]:
        sender = (layout.sender_of(who), layout.incarnation_of(who))
        if posted.status is None:
            if sender not in self.observed.killed:
                yield "it never ended"
            return
        if posted.flaw and posted.status == Status.OK:
            yield "it had no right to what it asked for, but completed with OK"
        if posted.status not in HARMLESS and self._scenario.calm and not posted.flaw:
            yield f"nothing was wrong, and it ended with {Status(posted.status).name}"
        if posted.status == Status.OK and posted.at > self.observed.withdrawn.get(posted.memory, math.inf):
            yield "it was posted after the memory was withdrawn, but completed with OK"
        if posted.kind == "send" or (posted.kind == "batch" and not shares_number(number, posted)):
            yield from self._of_delivery(who, posted, self.observed.got[who, number])
        if posted.kind == "write" and posted.immediate is not None:
            yield from self._of_delivery(who, posted, self.observed.got_writes[who, posted.offset])

    def _of_delivery(self, who: int, posted: Posted, times: int) -> Iterator[str]:
        if times > 1:
            yield f"it was delivered {times} times"
        if posted.status == Status.OK and not times and self._was_read(who):
            yield "it completed with OK, and was not delivered"
        if times and posted.status in NEVER_DELIVERED:
            yield f"it ended with {Status(posted.status or 0).name}, and was delivered"

    def _was_read(self, who: int) -> bool:
        """Whether the receiver read all that came over a connection."""
        incarnation = self.observed.receiver_of.get(who)
        if who in self.observed.closed:
            return False
        if incarnation is None:  # what a killed receiver read is not known
            return not any(each == 0 for each, _ in self.observed.killed)
        return (0, incarnation) not in self.observed.killed

    def _of_short_batches(self) -> Iterator[str]:
        """Of messages of less than a lane the number is the first's of their batch: there are so many of it."""
        wanted: dict[Id, list[Posted]] = defaultdict(list)
        for (who, _), posted in self.observed.posted.items():
            if posted.kind == "batch" and short(posted.length) and posted.immediate is not None:
                wanted[who, posted.immediate].append(posted)
        for (who, first), batch in wanted.items():
            itself = self.observed.posted[who, first]
            longer = 0 if short(itself.length) else 1  # the first one's own, which carries its number
            good = sum(posted.status == Status.OK for posted in batch)
            times = self.observed.got[who, first] - min(longer, self.observed.got[who, first])
            if times > len(batch):
                yield f"batch {first} of connection {who}: {len(batch)} short messages came {times} times"
            if times < good - longer and self._was_read(who):
                yield f"batch {first} of connection {who}: {good} short messages completed with OK, {times} came"

    # -- memory -----------------------------------------------------------------------------------------------------

    def _memories(self) -> Iterator[Memory]:
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

    def _check_memory(self, memory: Memory) -> None:
        """Check every byte of a file that was ever made."""
        path = memory.path(self._directory)
        if not path.exists() or path.stat().st_size < memory.size_bytes:
            return
        found = np.memmap(path, np.uint8, "r")[: memory.size_bytes]
        at = 0
        for start, end in sorted(self._used(memory)):
            self._untouched(memory, found, at, start)
            at = max(at, end)
        self._untouched(memory, found, at, memory.size_bytes)
        for (who, number), posted in self._of_memory.get(memory.name, {}).items():
            if posted.status == Status.OK and memory.name not in self.observed.withdrawing:
                self._landed(memory, found, who, number, posted)
        if memory.name in self.observed.withdrawn:
            self._unchanged(memory, found)

    def _used(self, memory: Memory) -> Iterator[tuple[int, int]]:
        """Yield the ranges (start, end) that requests may have written to."""
        for posted in self._of_memory.get(memory.name, {}).values():
            if posted.flaw == NO_FLAW:
                yield posted.offset, posted.offset + posted.length
            elif posted.flaw == RANGE_FLAW and posted.kind == "write":
                yield posted.offset, _end_of_range(memory, posted.offset)

    def _untouched(self, memory: Memory, found: Bytes, start: int, end: int) -> None:
        if start >= end:
            return
        if wrong := check(found[start:end], self._scenario.seed, who=memory.owner, message=memory.number, offset=start):
            self.observed.wrong.append(f"{memory.name}, where nothing may be written: {wrong}")

    def _landed(self, memory: Memory, found: Bytes, who: int, number: int, posted: Posted) -> None:
        piece, seed = found[posted.offset : posted.offset + posted.length], self._scenario.seed
        if posted.kind == "write":
            wrong = check(piece, seed, who=who, message=number)
        else:
            wrong = check(piece, seed, who=SOURCE, message=posted.source_incarnation, offset=posted.source_offset)
        if wrong:
            self.observed.wrong.append(
                f"{memory.name}: {posted.kind} {number} of connection {who}, {posted.length} bytes at "
                f"{posted.offset}, completed with OK: {wrong}"
            )

    def _unchanged(self, memory: Memory, found: Bytes) -> None:
        before = np.memmap(self._directory / f"{memory.name}.withdrawn", np.uint8, "r")[: memory.size_bytes]
        places = np.flatnonzero(before != found)
        if len(places):
            self.observed.wrong.append(
                f"{memory.name}: bytes {places[0]} to {places[-1]} ({len(places)}) changed after it was withdrawn"
            )


def _end_of_range(memory: Memory, offset: int) -> int:
    """Return the end of the registered range that `offset` lies in; if it lies in none, itself."""
    return next((at + size for at, size in memory.ranges if at <= offset <= at + size), offset)


def left_over(path: Path) -> Iterator[tuple[int, int, list[Any]]]:
    """Yield what a worker had left when all was closed: anonymous bytes more, bytes of regions, descriptors."""
    for entry in entries(path):
        if entry.kind == "left":
            anonymous, regions, descriptors = entry.values
            yield anonymous, regions, descriptors
