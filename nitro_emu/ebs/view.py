"""The writer's decisions: who is a replica in an epoch, what each of them has, and who may be read. No I/O, no clock.

Theory of operation. An epoch's view is formed of a majority that has promised it. Of what they have, `decide` takes for
each block the highest version among those with the highest mark, as a write that was acknowledged is on a majority of
replicas that had the mark of its epoch. What was decided is adopted by all members before the first read: a write that
its writer gave up is there from then on, or never.

While the view lasts, the only writer knows more than any replica: which writes are on their way to whom. A member is
read only where it lacks nothing and no write is on its way to it. So one replica is enough for a read, which returns
when a majority has what may have been read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from nitro_emu.ebs.server.entries import EXTENT_BLOCKS, U64, Entries, Kind, runs
from nitro_emu.ebs.server.wal import MAX_BLOCKS

LEASE_S: Final = 1.5
"""How long after a command was sent its replica keeps others out, as the writer counts: replicas keep 2 s, and clocks
run no 30 % apart."""


def majority(replicas: int) -> int:
    """Return how many of them are one."""
    return replicas // 2 + 1


def decide(tables: Mapping[int, Entries], *, marks: Mapping[int, int]) -> Entries:
    """Return version and kind of each block, of the tables and marks of replicas; ABSENT where none of them has it."""
    top = max(marks[replica] for replica in tables)
    version = np.maximum.reduce([table.version for replica, table in tables.items() if marks[replica] == top])
    kind = np.full(len(version), Kind.ABSENT.value, np.uint32)
    for table in tables.values():
        has = (table.version == version) & (table.kind != Kind.ABSENT)
        kind[has] = table.kind[has]
    return Entries(version, np.zeros(len(version), np.uint32), kind)


@dataclass(frozen=True, slots=True)
class Adoption:
    """Blocks that a replica has to take as they were decided."""

    first: int
    """Of the table that was decided."""
    count: int
    version: int
    kind: Kind


def adoptions(decided: Entries, table: Entries) -> Iterator[Adoption]:
    """Yield what a replica has to adopt; what has data becomes ABSENT until it is repaired."""
    has_none = (decided.kind == Kind.HOLE) | (decided.kind == Kind.ZERO)
    differs = (table.version != decided.version) | (has_none & (table.kind == Kind.ABSENT))
    for first, end in runs(differs):
        version, kind = decided.version[first:end], np.where(has_none, decided.kind, Kind.ABSENT.value)[first:end]
        edges = np.flatnonzero((np.diff(version) != 0) | (np.diff(kind.astype(np.int64)) != 0)) + 1
        for at, until in zip([0, *edges.tolist()], [*edges.tolist(), end - first], strict=True):
            yield Adoption(first + at, until - at, int(version[at]), Kind(int(kind[at])))


def missing(decided: Entries, table: Entries) -> U64:
    """Return the versions of the blocks that a replica is to be given, 0 for the others."""
    has = (table.version == decided.version) & (table.kind != Kind.ABSENT)
    needs = ((decided.kind == Kind.DATA) | (decided.kind == Kind.ABSENT)) & ~has
    return np.where(needs, decided.version, np.uint64(0))


@dataclass(slots=True)
class Member:
    """A replica of the view."""

    missing: dict[int, U64] = field(default_factory=dict)
    """By extent; see `missing`."""
    writing: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Writes that it has not acknowledged: first block and end, by number."""
    calls: int = 0
    """That are on their way."""
    leased_until: float = -np.inf
    _repaired_to: int = 0

    def can_read(self, first: int, end: int) -> bool:
        """Whether it has these blocks as they were written last."""
        if any(begin < end and first < until for begin, until in self.writing.values()):
            return False
        return not any(versions.any() for _, versions in self._parts(first, end))

    def _parts(self, first: int, end: int) -> Iterator[tuple[int, U64]]:
        """Yield the extents in which something is missing, as far as they are within the blocks."""
        if not self.missing:
            return
        for extent in range(first // EXTENT_BLOCKS, (end - 1) // EXTENT_BLOCKS + 1):
            if (versions := self.missing.get(extent)) is not None:
                start = extent * EXTENT_BLOCKS
                yield extent, versions[max(first - start, 0) : end - start]

    def has_got(self, first: int, end: int, *, version: int) -> None:
        """Note that it has these blocks at this version, or a later one."""
        for extent, versions in list(self._parts(first, end)):
            versions[versions <= version] = 0
            if not self.missing[extent].any():
                del self.missing[extent]

    def lacks(self, block: int, *, version: int) -> None:
        """Note that it has lost a block."""
        extent, at = divmod(block, EXTENT_BLOCKS)
        self.missing.setdefault(extent, np.zeros(EXTENT_BLOCKS, np.uint64))[at] = version

    def to_repair(self) -> tuple[int, int, int] | None:
        """Return first block, count and version of blocks that it lacks: others than the last time, if there are."""
        for least in (self._repaired_to, 0):
            for extent in sorted(self.missing):
                start, versions = extent * EXTENT_BLOCKS, self.missing[extent]
                lacks = np.flatnonzero(versions[max(least - start, 0) :]) + max(least - start, 0)
                if lacks.size:
                    part = versions[lacks[0] : lacks[0] + MAX_BLOCKS]
                    differs = np.flatnonzero(part != part[0])
                    first, count = start + int(lacks[0]), int(differs[0]) if differs.size else len(part)
                    self._repaired_to = first + count
                    return first, count, int(part[0])
        return None

    @property
    def missing_blocks(self) -> int:
        """How many blocks it lacks."""
        return sum(int(np.count_nonzero(versions)) for versions in self.missing.values())


class View:
    """The replicas of an epoch, as their only writer knows them."""

    def __init__(self, epoch: int, *, replicas: int, members: Iterable[int]) -> None:
        """`replicas`: of the volume."""
        self.epoch = epoch
        self._replicas = replicas
        self.majority = majority(replicas)
        self.members = {number: Member() for number in members}
        self._turn = 0
        self._open: dict[int, tuple[int, int, set[int]]] = {}
        self.is_over = False

    @property
    def is_whole(self) -> bool:
        """Whether all replicas are members and have all that was written."""
        members = self.members.values()
        return len(members) == self._replicas and not any(each.missing or each.writing for each in members)

    def drop(self, member: int) -> None:
        """Go on without a member: it has failed a command, and may lack what it was to do."""
        self.members.pop(member, None)
        if len(self.members) < self.majority:
            self.is_over = True

    def begin_write(self, number: int, *, first: int, end: int) -> list[int]:
        """Note a write to all members; return these."""
        self._open[number] = (first, end, set())
        for member in self.members.values():
            member.writing[number] = (first, end)
        return list(self.members)

    def acknowledged(self, number: int, *, member: int, version: int) -> None:
        """Note that a member has a write."""
        if (begun := self._open.get(number)) is not None:
            begun[2].add(member)
            if len(begun[2]) >= self.majority:
                del self._open[number]
        if (found := self.members.get(member)) is not None and (blocks := found.writing.pop(number, None)) is not None:
            found.has_got(*blocks, version=version)

    def is_open(self, first: int, end: int) -> bool:
        """Whether there is a write to these blocks that no majority has yet: what was read may be lost again."""
        return any(begin < end and first < until for begin, until, _ in self._open.values())

    def has_reader(self, first: int, end: int) -> bool:
        """Whether there is a member that may be read."""
        return any(member.can_read(first, end) for member in self.members.values())

    def readers(self, first: int, end: int) -> list[int]:
        """Return the members that may be read, those with the fewest calls on their way first, equals in turn."""
        able = [number for number, member in self.members.items() if member.can_read(first, end)]
        self._turn += 1
        able = able[self._turn % len(able) :] + able[: self._turn % len(able)] if able else able
        return sorted(able, key=lambda number: self.members[number].calls)

    def renew(self, member: int, *, sent_at: float) -> None:
        """Note that a member has done a command."""
        if (found := self.members.get(member)) is not None:
            found.leased_until = max(found.leased_until, sent_at + LEASE_S)

    def is_leased(self, now: float) -> bool:
        """Whether no other writer can have begun before now."""
        return sum(member.leased_until > now for member in self.members.values()) >= self.majority
