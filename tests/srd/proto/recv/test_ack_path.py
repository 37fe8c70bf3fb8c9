"""Paths of acks: round robin, and what probes name."""

from __future__ import annotations

from collections import Counter

import pytest

from srd.proto.recv.ack_path import ACKS_ON_PREFERRED, PREFERENCE_S, AckPathSelector
from srd.proto.recv.receiver import MAX_ANSWERS, PREFERRED_REPORT_REPEATS, PROBE_ANSWERS, Receiver
from srd.proto.wire.control import NO_PATH, Ack
from tests.srd.proto.recv.test_receiver import ack_of, receiver, run


@pytest.mark.parametrize(("ours", "theirs"), [(1, 1), (1, 7), (8, 1), (8, 8), (32, 12), (5, 64)])
def test_next__by_turns_every_path_of_ours_meets_every_address(ours: int, theirs: int) -> None:
    ways, remote_path = AckPathSelector(paths=ours), [10 + number for number in range(theirs)]
    found = Counter(ways.select(remote_path, now=1.0) for _ in range(ours * theirs))
    assert found == Counter((path, number) for path in range(ours) for number in remote_path)


def test_next__each_leaves_by_another_path_of_ours() -> None:
    """Though the addresses change from ack to ack: with few turns much must be tried."""
    ways = AckPathSelector(paths=16)
    found = [ways.select([0] * (1 + number % 5), now=1.0)[0] for number in range(16)]
    assert sorted(found) == [*range(16)]


def test_prefer__most_go_there_for_a_while_and_some_take_turns() -> None:
    ways = AckPathSelector(paths=8)
    ways.prefer((5, 3), now=1.0)
    assert ways.preferred
    found = [ways.select([0, 1, 2], now=1.0) for _ in range(8 * (ACKS_ON_PREFERRED + 1))]
    others = [way for way in found if way != (5, 3)]
    assert len(others) == 8
    assert {path for path, _ in others} == set(range(8))
    assert found[:ACKS_ON_PREFERRED] == [(5, 3)] * ACKS_ON_PREFERRED, "its sender waits for them"
    later = [ways.select([0, 1, 2], now=1.0 + PREFERENCE_S) for _ in range(8)]
    assert (5, 3) not in later
    assert not ways.preferred


def test_prefer__again_for_as_long_again() -> None:
    ways = AckPathSelector(paths=8)
    ways.prefer((5, 3), now=1.0)
    ways.prefer((2, 7), now=1.4)
    assert (2, 7) in {ways.select([0], now=1.8) for _ in range(2)}


@pytest.mark.parametrize("path", [8, 255])
def test_prefer__a_path_that_is_not_ours(path: int) -> None:
    ways = AckPathSelector(paths=8)
    ways.prefer((path, 0), now=1.0)
    assert not ways.preferred


# -- a receiver that gets them from probes -------------------------------------------------------------------------


def answers_to_probe(ours: Receiver, *, way: tuple[int, int], probes: int = 1) -> list[Ack]:
    for sequence in range(probes):
        ours.answer_probe(
            0,
            size_bytes=8972,
            ack_path=way,
            path_sequence=sequence,
            sent_us=0,
            address="a:0",
            now=10.0,
            received_at=10.0,
        )
    acks = [ack_of(ours)]
    while ours.ack_at == 10.0:
        acks.append(ack_of(ours))
    return acks


@pytest.mark.parametrize(("probes", "answers"), [(1, PROBE_ANSWERS), (3, 3 * PROBE_ANSWERS), (10, MAX_ANSWERS)])
def test_answer_probe__several_together_get_several_answers(probes: int, answers: int) -> None:
    assert len(answers_to_probe(receiver(), way=(NO_PATH, NO_PATH), probes=probes)) == answers


def test_answer_probe__the_path_that_it_names_is_used_and_paths_are_reported_twice() -> None:
    ours = receiver()
    for path in range(4):
        ours.accept(run(path, path=path, path_sequence=0, length=9999), now=10.0)
    assert (5, 3) in {(ack.path, ack.remote_path) for ack in answers_to_probe(ours, way=(5, 3))}
    ours.accept(run(4, path=2, path_sequence=1, length=9999), now=10.1)
    for _ in range(PREFERRED_REPORT_REPEATS):
        assert [report.path for report in ack_of(ours, now=10.1).reports] == [2]
    assert ack_of(ours, now=10.1).reports == ()


def test_answer_probe__a_path_without_packets_is_no_path() -> None:
    ours = receiver()
    assert {ack.remote_path for ack in answers_to_probe(ours, way=(0, 1))} == {0}
