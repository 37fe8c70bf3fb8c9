"""Path selection, by the shares of many choices."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest

from srd.proto.outgoing.inflight import InflightBurst, PsnRange
from srd.proto.outgoing.message import OutgoingMessage
from srd.proto.paths.one_way import Clocks, OneWayDelay
from srd.proto.paths.path import Path, PathState
from srd.proto.paths.rtt import RttEstimator
from srd.proto.paths.selector import MAX_ACK_CREDITS, PathSelector, expected_rtt_s
from srd.proto.work_request import WorkRequest

NOW = 10.0
SEEDS = [1, 2, 3]
CHOICES = 2000


def paths(*rtts_s: float) -> list[Path]:
    """Paths with a fresh report of these round trips; the smallest was 2 ms."""
    made = [Path(index, initial_rtt_s=0.05) for index in range(len(rtts_s))]
    for path, rtt_s in zip(made, rtts_s, strict=True):
        clocks = Clocks()
        for sample_s in (0.002, *[rtt_s] * 100):
            path.rtt.update(sample_s, now=NOW)
            path.one_way.update(sample_s, clocks=clocks, rtt=path.rtt, now=NOW)
    return made


def select(
    selector: PathSelector, active: list[Path], *, cwnd_limited: bool = True, unequal: bool = False, now: float = NOW
) -> Path:
    """Select a path for one packet."""
    return selector.select(active, packets=1, now=now, cwnd_limited=cwnd_limited, unequal=unequal)[0]


def shares(selector: PathSelector, active: list[Path], *, choices: int = CHOICES, **options: Any) -> Counter[int]:
    """How often each path is selected."""
    return Counter(select(selector, active, **options).index for _ in range(choices))


def retransmits_over(selector: PathSelector, active: list[Path], *, avoid: Path, now: float = NOW) -> set[int]:
    return {selector.select_for_retransmission(active, now=now, avoid=avoid).index for _ in range(100)}


@pytest.mark.parametrize("seed", SEEDS)
def test_select__equal_paths_share_equally(seed: int) -> None:
    found = shares(PathSelector(rng=Random(seed)), paths(*[0.002] * 8))
    assert set(found) == set(range(8))
    assert min(found.values()) > 0.5 * CHOICES / 8


@pytest.mark.parametrize("seed", SEEDS)
def test_select__avoids_a_congested_path(seed: int) -> None:
    found = shares(PathSelector(rng=Random(seed)), paths(0.002, 0.002, 0.002, 0.02))
    assert found[3] < CHOICES / 4 / 2


@pytest.mark.parametrize("seed", SEEDS)
def test_select__a_long_path_carries_what_it_delivers(seed: int) -> None:
    """Its queue is empty. Where nothing is to be filled, and no ack to be followed, the short path is preferred."""
    short, long = paths(0.002, 0.002)
    long.rtt = RttEstimator(initial_s=0.05)
    long.rtt.update(0.006, now=NOW)
    selector = PathSelector(rng=Random(seed))
    for _ in range(100):
        selector.on_ack(long, packets=1)
        assert select(selector, [short, long]) is long
    assert shares(selector, [short, long], cwnd_limited=False)[short.index] > 0.7 * CHOICES
    spread = shares(selector, [short, long], unequal=True)
    assert 0.4 * CHOICES < spread[short.index] < 0.6 * CHOICES, "a window is spread over both"


def test_select__ack_credits_that_are_too_old_are_forgotten() -> None:
    """A peer whose acks come while nothing is sent takes no more memory for each."""
    first, then = paths(0.002, 0.002)
    selector = PathSelector(rng=Random(1))
    selector.on_ack(first, packets=1)
    for _ in range(MAX_ACK_CREDITS - 1):
        selector.on_ack(then, packets=1)
    assert select(selector, [first, then]) is first
    selector.on_ack(first, packets=1)
    for _ in range(MAX_ACK_CREDITS):
        selector.on_ack(then, packets=1)
    assert [select(selector, [first, then]) for _ in range(MAX_ACK_CREDITS)] == [then] * MAX_ACK_CREDITS


@pytest.mark.parametrize("seed", SEEDS)
def test_select__a_short_path_with_a_queue_leaves_packets_to_a_long_one(seed: int) -> None:
    """Its round trip with the queue is still shorter than the long path's, but its queue is what would overflow."""
    short, long = paths(0.004, 0.02)
    long.one_way, long.rtt = OneWayDelay(), RttEstimator(initial_s=0.05)
    long.rtt.update(0.02, now=NOW)
    long.one_way.update(0.02, clocks=Clocks(), rtt=long.rtt, now=NOW)
    selector, taken = PathSelector(rng=Random(seed)), Counter[int]()
    for _ in range(CHOICES):
        selector.on_ack(short, packets=1)
        taken[select(selector, [short, long], unequal=True).index] += 1
    assert 0.4 * CHOICES < taken[long.index] < 0.6 * CHOICES, "whenever it is the random other path"


@pytest.mark.parametrize("seed", SEEDS)
def test_select_for_retransmission__avoids_the_path_of_the_loss(seed: int) -> None:
    made = paths(0.002, 0.002, 0.002)
    selector = PathSelector(rng=Random(seed))
    assert retransmits_over(selector, made, avoid=made[1]) == {0, 2}
    selector.on_ack(made[1], packets=10)
    assert retransmits_over(selector, made, avoid=made[1]) == {0, 2}


@pytest.mark.parametrize("seed", SEEDS)
def test_select_for_retransmission__takes_the_path_that_answered_where_others_time_out(seed: int) -> None:
    made = paths(0.002, 0.002, 0.002, 0.002)
    selector = PathSelector(rng=Random(seed))
    selector.on_ack(made[2], packets=10)
    psns = PsnRange(0, 1, OutgoingMessage(WorkRequest(1, 100), 0, segment_bytes=100), 0, 156)
    for path in (made[0], made[1], made[3]):
        path.transmissions.append(InflightBurst(psns, 0, 1, 0, NOW))
    assert retransmits_over(selector, made, avoid=made[1]) == {0, 2, 3}
    assert retransmits_over(selector, made, avoid=made[1], now=NOW + 0.01) == {2}
    made[2].state = PathState.SUSPECT
    assert retransmits_over(selector, made[:2], avoid=made[1], now=NOW + 0.01) == {0}


def test_expected_rtt_s__of_a_silent_path_is_at_least_its_silence() -> None:
    (ours,) = paths(0.004)
    psns = PsnRange(0, 1, OutgoingMessage(WorkRequest(1, 100), 0, segment_bytes=100), 0, 156)
    ours.transmissions.append(InflightBurst(psns, 0, 1, 0, NOW))
    assert expected_rtt_s(ours, now=NOW) == pytest.approx(0.004)
    assert expected_rtt_s(ours, now=NOW + 0.003) < 0.004  # its queue drains
    assert expected_rtt_s(ours, now=NOW + 0.010) == pytest.approx(0.010)
    ours.reported_sequence = 3  # a later packet was acknowledged: the path lost one packet, and works
    assert expected_rtt_s(ours, now=NOW + 0.010) < 0.004


def test_select_for_retransmission__takes_the_only_path_even_if_it_is_to_be_avoided() -> None:
    made = paths(0.002)
    assert PathSelector(rng=Random(1)).select_for_retransmission(made, now=NOW, avoid=made[0]) is made[0]


@pytest.mark.parametrize("seed", SEEDS)
def test_select__follows_the_acks(seed: int) -> None:
    """A path carries as many packets again as it has acknowledged."""
    made = paths(*[0.002] * 8)
    selector = PathSelector(rng=Random(seed))
    selector.on_ack(made[2], packets=6)
    selector.on_ack(made[5], packets=3)
    carried = Counter[int]()
    while sum(carried.values()) < 9:
        path, count = selector.select(made, packets=2, now=NOW, cwnd_limited=True, unequal=False)
        assert 1 <= count <= 2
        carried[path.index] += count
    assert carried == {2: 6, 5: 3}


def test_select__bursts_are_not_limited_by_ack_credit_unless_cwnd_limited() -> None:
    made = paths(*[0.002] * 8)
    selector = PathSelector(rng=Random(1))
    selector.on_ack(made[2], packets=3)
    assert selector.select(made, packets=64, now=NOW, cwnd_limited=False, unequal=False) == (made[2], 64)


@pytest.mark.parametrize("seed", SEEDS)
def test_select__before_any_ack_all_paths_are_tried(seed: int) -> None:
    made = [Path(index, initial_rtt_s=0.05) for index in range(8)]
    selector = PathSelector(rng=Random(seed))
    assert {
        selector.select(made, packets=4, now=NOW, cwnd_limited=True, unequal=False)[0].index for _ in range(200)
    } == set(range(8))


@pytest.mark.parametrize("seed", SEEDS)
def test_select__a_path_that_timed_out_loses_its_ack_credit(seed: int) -> None:
    made = paths(0.002, 0.002)
    selector = PathSelector(rng=Random(seed))
    selector.on_ack(made[1], packets=100)
    made[1].state = PathState.SUSPECT
    assert set(shares(selector, made[:1], choices=200)) == {0}


@pytest.mark.parametrize("seed", SEEDS)
def test_select__ack_credit_does_not_bind_to_a_congested_path(seed: int) -> None:
    made = paths(0.002, 0.002, 0.002, 0.02)
    selector = PathSelector(rng=Random(seed))
    taken = Counter[int]()
    for _ in range(CHOICES):
        selector.on_ack(made[3], packets=1)
        taken[select(selector, made).index] += 1
    assert taken[3] < CHOICES / 2


@pytest.mark.parametrize("seed", SEEDS)
def test_select__a_path_without_a_report_for_long_is_tried_again(seed: int) -> None:
    """However slow it was: its present round trip is unknown."""
    made, later = paths(0.002, 0.5), NOW + 5.0
    made[0].rtt.update(0.002, now=later)
    selector = PathSelector(rng=Random(seed))
    assert 1 in shares(selector, made, choices=50, now=later)
