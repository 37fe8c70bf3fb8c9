"""What a writer decides, of tables of what replicas have."""

from __future__ import annotations

import numpy as np

from nitro_emu.ebs.server.entries import Entries, Kind, version_of
from nitro_emu.ebs.view import Adoption, View, adoptions, decide, missing

HOLE, DATA, ZERO, ABSENT = Kind


def table(*blocks: tuple[Kind, int]) -> Entries:
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
    assert list(adoptions(both, tables[0])) == [Adoption(2, 1, 7, ABSENT), Adoption(3, 1, 2, ZERO)]
    assert list(adoptions(both, tables[1])) == [Adoption(1, 1, 6, ABSENT), Adoption(4, 1, 3, ZERO)]
    assert missing(both, tables[0]).tolist() == [0, 0, 7, 0, 0]
    assert missing(both, tables[1]).tolist() == [0, 6, 0, 0, 0]


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
