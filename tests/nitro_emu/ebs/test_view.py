"""What a writer decides, of tables of what replicas have."""

from __future__ import annotations

import numpy as np

from nitro_emu.ebs.server.entries import BlockKind, Entries, version_of
from nitro_emu.ebs.view import Adoption, View, adoptions, decide, missing, roll_back

HOLE, DATA, ZERO, ABSENT = BlockKind


def table(*blocks: tuple[BlockKind, int]) -> Entries:
    kinds, versions = zip(*blocks, strict=True)
    return Entries(np.array(versions, np.uint64), np.zeros(len(blocks), np.uint32), np.array(kinds, np.uint32))


def decided(tables: dict[int, Entries], *, marks: dict[int, int]) -> list[tuple[int, int]]:
    found = decide(tables, marks=marks)
    return list(zip(found.kind.tolist(), found.version.tolist(), strict=True))


def test_the_highest_version_is_taken() -> None:
    tables = {0: table((DATA, 5), (HOLE, 0), (ZERO, 9)), 1: table((DATA, 7), (HOLE, 0), (DATA, 8))}
    assert decided(tables, marks={0: 1, 1: 1}) == [(DATA, 7), (HOLE, 0), (ZERO, 9)]


def test_what_a_replica_of_an_earlier_epoch_has_alone_was_never_acknowledged() -> None:
    tables = {0: table((DATA, version_of(1, sequence=9))), 1: table((DATA, version_of(1, sequence=8)))}
    assert decided(tables, marks={0: 1, 1: 2}) == [(DATA, version_of(1, sequence=8))]


def test_one_that_is_absent_is_taken_from_whoever_has_that_version() -> None:
    tables = {0: table((ABSENT, 5), (ABSENT, 5)), 1: table((DATA, 5), (DATA, 4))}
    assert decided(tables, marks={0: 2, 1: 1}) == [(DATA, 5), (ABSENT, 5)]


def test_each_replica_adopts_what_it_has_otherwise() -> None:
    tables = {
        0: table((DATA, 5), (DATA, 6), (DATA, 6), (HOLE, 0), (ZERO, 3)),
        1: table((DATA, 5), (DATA, 4), (DATA, 7), (ZERO, 2), (ABSENT, 3)),
    }
    both = decide(tables, marks={0: 1, 1: 1})
    assert list(adoptions(both, tables[0], held=tables[0])) == [Adoption(2, 1, 7, ABSENT), Adoption(3, 1, 2, ZERO)]
    assert list(adoptions(both, tables[1], held=tables[1])) == [Adoption(1, 1, 6, ABSENT), Adoption(4, 1, 3, ZERO)]
    assert missing(both, tables[0]).tolist() == [0, 0, 7, 0, 0]
    assert missing(both, tables[1]).tolist() == [0, 6, 0, 0, 0]


def test_what_nobody_has_is_rolled_back_to_the_newest_that_somebody_has() -> None:
    tables = {0: table((ABSENT, 9), (ABSENT, 9), (ABSENT, 9)), 1: table((ABSENT, 9), (DATA, 4), (ABSENT, 9))}
    held = {0: table((DATA, 5), (DATA, 3), (HOLE, 0)), 1: table((DATA, 7), (DATA, 4), (ZERO, 2))}
    both = roll_back(decide(tables, marks={0: 2, 1: 1}), held=held, replicas=3)
    assert list(zip(both.kind.tolist(), both.version.tolist(), strict=True)) == [(DATA, 7), (DATA, 4), (ZERO, 2)]
    assert list(adoptions(both, tables[0], held=held[0])) == [
        Adoption(0, 1, 7, ABSENT), Adoption(1, 1, 4, ABSENT), Adoption(2, 1, 2, ZERO),
    ]  # fmt: skip
    assert list(adoptions(both, tables[1], held=held[1])) == [Adoption(0, 1, 7, DATA), Adoption(2, 1, 2, ZERO)]
    assert [missing(both, each).tolist() for each in held.values()] == [[7, 4, 0], [0, 0, 0]]


def test_it_is_not_rolled_back_when_too_few_know_what_they_have() -> None:
    tables = {0: table((ABSENT, 9)), 1: table((ABSENT, 9))}
    held = {0: table((ABSENT, 9)), 1: table((DATA, 4))}  # the first one has lost what it had: it may have been 9
    both = roll_back(decide(tables, marks={0: 2, 1: 2}), held=held, replicas=3)
    assert (both.kind.tolist(), both.version.tolist()) == ([ABSENT], [9])
    both = roll_back(decide(tables, marks={0: 2, 1: 2}), held=held | {2: table((DATA, 5))}, replicas=3)
    assert (both.kind.tolist(), both.version.tolist()) == ([DATA], [5])


def test_a_block_is_certain_once_a_majority_has_it() -> None:
    view = View(3, replicas=3, members=(0, 1, 2))
    view.uncertain[0] = np.arange(1024) < 2
    for member in (1, 2):
        for block in (0, 1):
            view.members[member].lacks(block, version=9)
    view.has_got(2, 0, 2, version=8)  # an older write, which came late
    assert view.is_uncertain(0, 1)
    view.has_got(2, 0, 1, version=9)
    assert (view.is_uncertain(0, 1), view.is_uncertain(0, 2), view.is_uncertain(2, 2000)) == (False, True, False)
    view.begin_write(1, first=0, end=2)
    view.acknowledged(1, member=1, version=10)
    assert not view.is_uncertain(0, 2)


def test_a_member_is_read_when_it_lacks_nothing() -> None:
    view = View(3, replicas=3, members=(0, 1))
    view.members[0].lacks(5, version=9)
    assert view.readers(5, 6) == [1]
    assert sorted(view.readers(0, 5)) == [0, 1]
    view.begin_write(1, first=5, end=7)
    assert view.readers(6, 7) == []
    assert view.is_open(6, 7)
    view.acknowledged(1, member=0, version=version_of(3, sequence=1))
    assert view.readers(5, 6) == [0]
    assert view.is_open(6, 7)
    view.acknowledged(1, member=1, version=version_of(3, sequence=1))
    assert sorted(view.readers(5, 6)) == [0, 1]
    assert not view.is_open(6, 7)
    view.drop(0)
    assert view.is_over


def test_repairs_go_round() -> None:
    view = View(3, replicas=3, members=(0, 1, 2))
    member = view.members[2]
    for block, version in ((3, 8), (4, 8), (5, 9), (5000, 9)):
        member.lacks(block, version=version)
    assert member.missing_blocks == 4
    assert [member.to_repair() for _ in range(4)] == [(3, 2, 8), (5, 1, 9), (5000, 1, 9), (3, 2, 8)]
    member.has_got(3, 6, version=8)
    assert [member.to_repair() for _ in range(3)] == [(5, 1, 9), (5000, 1, 9), (5, 1, 9)]


def test_a_lease_is_a_majoritys() -> None:
    view = View(3, replicas=3, members=(0, 1, 2))
    view.renew(0, sent_at=10.0)
    assert not view.is_leased(10.1)
    view.renew(1, sent_at=10.2)
    assert view.is_leased(11.4)
    assert not view.is_leased(11.6)
