"""The writer's decisions: who is a replica in an epoch, what each of them has, and who may be read. No I/O, no clock.

Theory of operation. An epoch's view is formed of a majority that has promised it. Of what they have, `decide` takes for
each block the highest version among those with the highest mark, as a write that was acknowledged is on a majority of
replicas that had the mark of its epoch. What was decided is adopted by all members before the first read: a write that
its writer gave up is there from then on, or never. A member that lacks the data keeps what it had before.

It may be that nobody of the majority has the data of what was decided: whoever had it is away, or lost for good. What
was acknowledged, or read, is on a majority: of `enough` replicas that know what they have, one has it or a later write.
If none has, it was neither, and the newest version of which there is data is taken instead (`roll_back`). For this to
hold of what is read, a block is only read when a majority has it (`View.is_uncertain`).

While the view lasts, the only writer knows more than any replica: which writes are on their way to whom. A member is
read only where it lacks nothing and no write is on its way to it. So one replica is enough for a read, which returns
when a majority has what may have been read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from nitro_emu.ebs.server.entries import EXTENT_BLOCKS, U64, BlockKind, Entries, runs
from nitro_emu.ebs.server.wal import MAX_BLOCKS

Bools = npt.NDArray[np.bool_]

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
    kind = np.full(len(version), BlockKind.ABSENT.value, np.uint32)
    for table in tables.values():
        has = (table.version == version) & (table.kind != BlockKind.ABSENT)
        kind[has] = table.kind[has]
    return Entries(version, np.zeros(len(version), np.uint32), kind)


def enough(replicas: int) -> int:
    """Return of how many replicas one at least is in each majority."""
    return replicas - majority(replicas) + 1


def roll_back(decided: Entries, *, held: Mapping[int, Entries], replicas: int) -> Entries:
    """Return the decision with the newest data that there is where there is none of what was decided.

    `held`: the data that each member has, but for those that have lost all. Where too few of them know: as it was.
    """
    version, kind = np.zeros_like(decided.version), np.full_like(decided.kind, BlockKind.ABSENT)
    known = np.zeros(len(version), np.int64)
    for each in held.values():
        is_known = each.kind != BlockKind.ABSENT
        newer = is_known & ((each.version > version) | (kind == BlockKind.ABSENT))
        version[newer], kind[newer] = each.version[newer], each.kind[newer]
        known += is_known
    takes = (decided.kind == BlockKind.ABSENT) & (known >= enough(replicas))
    return Entries(np.where(takes, version, decided.version), decided.crc, np.where(takes, kind, decided.kind))


@dataclass(frozen=True, slots=True)
class Adoption:
    """Blocks that a replica has to take as they were decided."""

    first: int
    """Of the table that was decided."""
    count: int
    version: int
    kind: BlockKind


def adoptions(decided: Entries, table: Entries, *, held: Entries) -> Iterator[Adoption]:
    """Yield what a replica has to adopt; what has data becomes ABSENT until it is repaired.

    As DATA what it is to take back: the data that it kept. `held`: see `roll_back`; the table, if that is not known.
    """
    has_none = (decided.kind == BlockKind.HOLE) | (decided.kind == BlockKind.ZERO)
    has_kept = _has_data(decided, held) & (table.kind == BlockKind.ABSENT)
    differs = (table.version != decided.version) | (has_none & (table.kind == BlockKind.ABSENT)) | has_kept
    kinds = np.where(has_none, decided.kind, np.where(has_kept, np.uint32(BlockKind.DATA), np.uint32(BlockKind.ABSENT)))
    for first, end in runs(differs):
        version, kind = decided.version[first:end], kinds[first:end]
        edges = np.flatnonzero((np.diff(version) != 0) | (np.diff(kind.astype(np.int64)) != 0)) + 1
        for at, until in zip([0, *edges.tolist()], [*edges.tolist(), end - first], strict=True):
            most = MAX_BLOCKS if kind[at] == BlockKind.DATA else until - at
            for begin in range(at, until, most):
                count = min(most, until - begin)
                yield Adoption(first + begin, count, int(version[at]), BlockKind(int(kind[at])))


def _has_data(decided: Entries, held: Entries) -> Bools:
    has: Bools = (held.version == decided.version) & (held.kind == BlockKind.DATA)
    return has


def missing(decided: Entries, held: Entries) -> U64:
    """Return the versions of the blocks that a replica is to be given, 0 for the others."""
    needs = ((decided.kind == BlockKind.DATA) | (decided.kind == BlockKind.ABSENT)) & ~_has_data(decided, held)
    return np.where(needs, np.maximum(decided.version, np.uint64(1)), np.uint64(0))


def uncertain(lacks: Iterable[U64], *, majority: int) -> Bools:
    """Return which blocks no majority has, by what members are to be given."""
    few: Bools = np.sum([each == 0 for each in lacks], axis=0) < majority
    return few


@dataclass(slots=True)
class ViewMember:
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
        if not self.missing:
            return None
        end = (max(self.missing) + 1) * EXTENT_BLOCKS
        found = self.gap(self._repaired_to, end) or self.gap(0, end)
        if found is not None:
            self._repaired_to = found[0] + found[1]
        return found

    def gap(self, first: int, end: int) -> tuple[int, int, int] | None:
        """Return first block, count and version of blocks that it lacks, at the beginning of some."""
        for extent in sorted(self.missing):
            start = extent * EXTENT_BLOCKS
            versions = self.missing[extent][: max(end - start, 0)]
            lacks = np.flatnonzero(versions[max(first - start, 0) :]) + max(first - start, 0)
            if lacks.size:
                part = versions[lacks[0] : lacks[0] + MAX_BLOCKS]
                differs = np.flatnonzero(part != part[0])
                return start + int(lacks[0]), int(differs[0]) if differs.size else len(part), int(part[0])
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
        self.members = {number: ViewMember() for number in members}
        self._turn = 0
        self._open: dict[int, tuple[int, int, set[int]]] = {}
        self.uncertain: dict[int, Bools] = {}
        """By extent: blocks that were decided, and that no majority has yet."""
        self.is_over = False

    @property
    def is_whole(self) -> bool:
        """Whether all replicas are members and have all that was written."""
        return all(map(self.has_all, range(self._replicas)))

    def has_all(self, replica: int) -> bool:
        """Whether a replica is a member and has all that was written."""
        member = self.members.get(replica)
        return member is not None and not member.missing and not member.writing

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
            self.has_got(member, *blocks, version=version)

    def has_got(self, member: int, first: int, end: int, *, version: int) -> None:
        """Note that a member has these blocks at this version, or a later one."""
        if (found := self.members.get(member)) is None:
            return
        found.has_got(first, end, version=version)
        for extent in self._uncertain(first, end):
            nothing = np.zeros(EXTENT_BLOCKS, np.uint64)
            lacks = [each.missing.get(extent, nothing) for each in self.members.values()]
            left = self.uncertain[extent] & uncertain(lacks, majority=self.majority)
            if left.any():
                self.uncertain[extent] = left
            else:
                del self.uncertain[extent]

    def is_uncertain(self, first: int, end: int) -> bool:
        """Whether no majority has what was decided of these blocks: what was read may be rolled back."""
        return any(
            self.uncertain[extent][max(first - extent * EXTENT_BLOCKS, 0) : end - extent * EXTENT_BLOCKS].any()
            for extent in self._uncertain(first, end)
        )

    def _uncertain(self, first: int, end: int) -> list[int]:
        if not self.uncertain:
            return []
        return [
            extent
            for extent in range(first // EXTENT_BLOCKS, (end - 1) // EXTENT_BLOCKS + 1)
            if extent in self.uncertain
        ]

    def gap(self, first: int, end: int) -> tuple[int, int, int, int] | None:
        """Return a member, and first block, count and version of what it lacks of these blocks."""
        gaps = ((number, member.gap(first, end)) for number, member in self.members.items())
        return next(((number, *gap) for number, gap in gaps if gap is not None), None)

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
