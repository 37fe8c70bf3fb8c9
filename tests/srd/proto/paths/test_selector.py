"""Which path a burst takes, seen from outside: shares over many choices."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from srd.proto.paths.path import Path, PathState
from srd.proto.paths.rtt import RttEstimator
from srd.proto.paths.selector import PathSelector, expected_rtt_s
from srd.proto.send.inflight import InflightBurst, PsnRange
from srd.proto.send.work_queue import WorkQueueEntry

NOW = 10.0
SEEDS = [1, 2, 3]
CHOICES = 2000


def paths(*rtts_s: float) -> list[Path]:
    """Paths that all had a report just now; what they measured stands above a smallest round trip of 2 ms."""
    made = [Path(index, initial_rtt_s=0.05) for index in range(len(rtts_s))]
    for path, rtt_s in zip(made, rtts_s, strict=True):
        path.rtt.update(0.002, now=NOW)
        for _ in range(100):
            path.rtt.update(rtt_s, now=NOW)
    return made


def shares(spray: PathSelector, active: list[Path]) -> Counter[int]:
    return Counter(spray.select(active, packets=1, now=NOW, cwnd_limited=True)[0].index for _ in range(CHOICES))


@pytest.mark.parametrize("seed", SEEDS)
def test_select__equal_paths_share_equally(seed: int) -> None:
    found = shares(PathSelector(rng=Random(seed)), paths(*[0.002] * 8))
    assert set(found) == set(range(8))
    assert min(found.values()) > 0.5 * CHOICES / 8


@pytest.mark.parametrize("seed", SEEDS)
def test_select__a_congested_path_is_left(seed: int) -> None:
    found = shares(PathSelector(rng=Random(seed)), paths(0.002, 0.002, 0.002, 0.02))
    assert found[3] < CHOICES / 4 / 2


@pytest.mark.parametrize("seed", SEEDS)
def test_select__a_long_path_carries_what_it_delivers(seed: int) -> None:
    """It is no slower than it ever was; without ACK credits the short one is faster."""
    short, long = paths(0.002, 0.002)
    long.rtt = RttEstimator(initial_s=0.05)
    long.rtt.update(0.006, now=NOW)
    spray = PathSelector(rng=Random(seed))
    for _ in range(100):
        spray.on_ack(long, packets=1)
        assert spray.select([short, long], packets=1, now=NOW, cwnd_limited=True)[0] is long
    assert shares(spray, [short, long])[0] > 0.7 * CHOICES


@pytest.mark.parametrize("seed", SEEDS)
def test_select_for_retransmission__avoids_the_path_of_the_loss(seed: int) -> None:
    made = paths(0.002, 0.002, 0.002)
    spray = PathSelector(rng=Random(seed))
    assert {spray.select_for_retransmission(made, now=NOW, avoid=made[1]).index for _ in range(100)} == {0, 2}
    spray.on_ack(made[1], packets=10)
    assert {spray.select_for_retransmission(made, now=NOW, avoid=made[1]).index for _ in range(100)} == {0, 2}


@pytest.mark.parametrize("seed", SEEDS)
def test_select_for_retransmission__takes_what_answered_last_where_others_time_out(seed: int) -> None:
    made = paths(0.002, 0.002, 0.002, 0.002)
    spray = PathSelector(rng=Random(seed))
    spray.on_ack(made[2], packets=10)
    run = PsnRange(0, 1, WorkQueueEntry(1, 0, 0, 100, 0), 0, 156)
    for path in (made[0], made[1], made[3]):
        path.transmissions.append(InflightBurst(run, 0, 1, 0, NOW))
    assert {spray.select_for_retransmission(made, now=NOW, avoid=made[1]).index for _ in range(100)} == {0, 2, 3}
    assert {spray.select_for_retransmission(made, now=NOW + 0.01, avoid=made[1]).index for _ in range(100)} == {2}
    made[2].state = PathState.SUSPECT
    assert {spray.select_for_retransmission(made[:2], now=NOW + 0.01, avoid=made[1]).index for _ in range(100)} == {0}


def test_expected_rtt_s__a_path_that_does_not_answer_is_taking_that_long_already() -> None:
    (ours,) = paths(0.004)
    run = PsnRange(0, 1, WorkQueueEntry(1, 0, 0, 100, 0), 0, 156)
    ours.transmissions.append(InflightBurst(run, 0, 1, 0, NOW))
    assert expected_rtt_s(ours, now=NOW) == pytest.approx(0.004)
    assert expected_rtt_s(ours, now=NOW + 0.003) < 0.004  # its queue drains
    assert expected_rtt_s(ours, now=NOW + 0.010) == pytest.approx(0.010)
    ours.reported_sequence = 3  # what came later on it was answered: it lost a packet, and is alive
    assert expected_rtt_s(ours, now=NOW + 0.010) < 0.004


def test_select_for_retransmission__takes_the_only_path_even_if_it_is_to_be_avoided() -> None:
    made = paths(0.002)
    assert PathSelector(rng=Random(1)).select_for_retransmission(made, now=NOW, avoid=made[0]) is made[0]


@pytest.mark.parametrize("seed", SEEDS)
def test_select__follows_the_answers(seed: int) -> None:
    """What was answered for on a path goes there again, packet for packet."""
    made = paths(*[0.002] * 8)
    spray = PathSelector(rng=Random(seed))
    spray.on_ack(made[2], packets=6)
    spray.on_ack(made[5], packets=3)
    carried = Counter[int]()
    while sum(carried.values()) < 9:
        path, count = spray.select(made, packets=2, now=NOW, cwnd_limited=True)
        assert 1 <= count <= 2
        carried[path.index] += count
    assert carried == {2: 6, 5: 3}


def test_select__what_the_window_does_not_hold_back_is_as_long_as_it_may_be() -> None:
    made = paths(*[0.002] * 8)
    spray = PathSelector(rng=Random(1))
    spray.on_ack(made[2], packets=3)
    assert spray.select(made, packets=64, now=NOW, cwnd_limited=False) == (made[2], 64)


@pytest.mark.parametrize("seed", SEEDS)
def test_select__before_any_answer_all_paths_are_tried(seed: int) -> None:
    made = [Path(index, initial_rtt_s=0.05) for index in range(8)]
    spray = PathSelector(rng=Random(seed))
    assert {spray.select(made, packets=4, now=NOW, cwnd_limited=True)[0].index for _ in range(200)} == set(range(8))


@pytest.mark.parametrize("seed", SEEDS)
def test_select__a_path_that_timed_out_earns_nothing(seed: int) -> None:
    made = paths(0.002, 0.002)
    spray = PathSelector(rng=Random(seed))
    spray.on_ack(made[1], packets=100)
    made[1].state = PathState.SUSPECT
    assert {spray.select(made[:1], packets=1, now=NOW, cwnd_limited=True)[0].index for _ in range(200)} == {0}


@pytest.mark.parametrize("seed", SEEDS)
def test_select__an_answer_does_not_bind_to_a_congested_path(seed: int) -> None:
    made = paths(0.002, 0.002, 0.002, 0.02)
    spray = PathSelector(rng=Random(seed))
    taken = Counter[int]()
    for _ in range(CHOICES):
        spray.on_ack(made[3], packets=1)
        taken[spray.select(made, packets=1, now=NOW, cwnd_limited=True)[0].index] += 1
    assert taken[3] < CHOICES / 2


@pytest.mark.parametrize("seed", SEEDS)
def test_select__a_path_without_a_report_for_long_is_tried_again(seed: int) -> None:
    """However slow it was: how it is now is not known."""
    made, later = paths(0.002, 0.5), NOW + 5.0
    made[0].rtt.update(0.002, now=later)
    spray = PathSelector(rng=Random(seed))
    assert 1 in {spray.select(made, packets=1, now=later, cwnd_limited=True)[0].index for _ in range(50)}
