"""Paths of acks: round robin, and those that probes name."""

from __future__ import annotations

from collections import Counter

import pytest

from srd.proto.recv.acks import (
    ACKS_ON_PREFERRED,
    MAX_ANSWERS,
    PREFERENCE_S,
    PREFERRED_REPORT_REPEATS,
    PROBE_ANSWERS,
    AckPathSelector,
)
from srd.proto.recv.receiver import Receiver
from srd.proto.wire.control import NO_PATH, Ack, Probe
from tests.srd.proto.recv.test_receiver import ack_of, burst_of, receiver


@pytest.mark.parametrize(("ours", "theirs"), [(1, 1), (1, 7), (8, 1), (8, 8), (32, 12), (5, 64)])
def test_select__uses_every_pair_of_path_and_address(ours: int, theirs: int) -> None:
    selector, remote_path = AckPathSelector(paths=ours), [10 + number for number in range(theirs)]
    found = Counter(selector.select(remote_path, now=1.0) for _ in range(ours * theirs))
    assert found == Counter((path, number) for path in range(ours) for number in remote_path)


def test_select__takes_another_local_path_each_time() -> None:
    """Also while the addresses change from ack to ack: few acks must cover many paths."""
    selector = AckPathSelector(paths=16)
    found = [selector.select([0] * (1 + number % 5), now=1.0)[0] for number in range(16)]
    assert sorted(found) == [*range(16)]


def test_prefer__most_acks_take_the_preferred_path_and_some_the_others() -> None:
    selector = AckPathSelector(paths=8)
    selector.prefer((5, 3), now=1.0)
    assert selector.preferred
    found = [selector.select([0, 1, 2], now=1.0) for _ in range(8 * (ACKS_ON_PREFERRED + 1))]
    others = [ack_path for ack_path in found if ack_path != (5, 3)]
    assert len(others) == 8
    assert {path for path, _ in others} == set(range(8))
    assert found[:ACKS_ON_PREFERRED] == [(5, 3)] * ACKS_ON_PREFERRED, "its sender needs these acks"
    later = [selector.select([0, 1, 2], now=1.0 + PREFERENCE_S) for _ in range(8)]
    assert (5, 3) not in later
    assert not selector.preferred


def test_prefer__anew_restarts_the_time() -> None:
    selector = AckPathSelector(paths=8)
    selector.prefer((5, 3), now=1.0)
    selector.prefer((2, 7), now=1.4)
    assert (2, 7) in {selector.select([0], now=1.8) for _ in range(2)}


@pytest.mark.parametrize("path", [8, 255])
def test_prefer__ignores_an_unknown_path(path: int) -> None:
    selector = AckPathSelector(paths=8)
    selector.prefer((path, 0), now=1.0)
    assert not selector.preferred


# -- probes --------------------------------------------------------------------------------------------------------


def answers_to_probe(ours: Receiver, *, ack_path: tuple[int, int], probes: int = 1) -> list[Ack]:
    for sequence in range(probes):
        ours.acks.on_probe(Probe(1, 77, 0, sequence, 0, *ack_path, 8972), address="a:0", now=10.0, received_at=10.0)
    acks = [ack_of(ours)]
    while ours.acks.due_at == 10.0:
        acks.append(ack_of(ours))
    return acks


@pytest.mark.parametrize(("probes", "answers"), [(1, PROBE_ANSWERS), (3, 3 * PROBE_ANSWERS), (10, MAX_ANSWERS)])
def test_on_probe__several_together_get_several_answers(probes: int, answers: int) -> None:
    assert len(answers_to_probe(receiver(), ack_path=(NO_PATH, NO_PATH), probes=probes)) == answers


def test_on_probe__uses_the_path_that_it_names_and_reports_paths_twice() -> None:
    ours = receiver()
    for path in range(4):
        ours.accept(burst_of(path, path=path, path_sequence=0, length=9999), now=10.0)
    assert (5, 3) in {(ack.path, ack.remote_path) for ack in answers_to_probe(ours, ack_path=(5, 3))}
    ours.accept(burst_of(4, path=2, path_sequence=1, length=9999), now=10.1)
    for _ in range(PREFERRED_REPORT_REPEATS):
        assert [report.path for report in ack_of(ours, now=10.1).reports] == [2]
    assert ack_of(ours, now=10.1).reports == ()


def test_on_probe__ignores_a_remote_path_without_packets() -> None:
    ours = receiver()
    assert {ack.remote_path for ack in answers_to_probe(ours, ack_path=(0, 1))} == {0}
