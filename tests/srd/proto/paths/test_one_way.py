"""Queueing on the way there, from two clocks of which one is off, drifts, wraps and steps."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srd.proto.paths.one_way import Clocks, OneWayDelay
from srd.proto.paths.rtt import RttEstimator

THERE_S = (0.001, 0.005, 0.05)
BACK_S = (0.0005, 0.002, 0.03)
TOLERANCE_S = 0.00015
"""Two roundings to microseconds, and 100 ppm of the second in which the quickest way back may not have been taken."""


class Peer:
    """Three paths of very different length; acks come back on a random one of three ways."""

    def __init__(self, *, clock: Callable[[float], float], seed: int = 1) -> None:
        self.clock = clock
        self.clocks = Clocks()
        self.paths = [(OneWayDelay(), RttEstimator(initial_s=0.05)) for _ in THERE_S]
        self._rng = Random(seed)

    def report(self, path: int, *, queue_s: float, now: float, back_s: float | None = None) -> float:
        """Process the report of a packet that met this queue and arrived here at `now`; return the estimate."""
        back_s = self._rng.choice(BACK_S) if back_s is None else back_s
        there_s = THERE_S[path] + queue_s
        received_us = int(self.clock(now - back_s) * 1e6) & 0xFFFFFFFF
        sent_us = int((now - back_s - there_s) * 1e6) & 0xFFFFFFFF
        rtt_us = (int(now * 1e6) - sent_us) & 0xFFFFFFFF
        one_way, rtt = self.paths[path]
        rtt.update(rtt_us / 1e6, now=now)
        way_there_s = self.clocks.way_there_s(sent_us=sent_us, received_us=received_us, rtt_us=rtt_us, now=now)
        one_way.update(way_there_s, clocks=self.clocks, rtt=rtt, now=now)
        return one_way.queue_s

    def run(self, *, start: float, seconds: float, queue_s: float) -> float:
        """Report every path 100 times a second, every tenth time with an empty queue; return the largest error."""
        error = 0.0
        for turn in range(round(seconds * 100)):
            met_s = queue_s if turn % 10 else 0.0
            for path in range(len(THERE_S)):
                found = self.report(path, queue_s=met_s, now=start + turn / 100)
                error = max(error, abs(found - met_s))
        return error


def warmed(peer: Peer, *, start: float) -> Peer:
    """After every path has been reported over every way back, without a queue."""
    for turn in range(30):
        for path in range(len(THERE_S)):
            for back_s in BACK_S:
                peer.report(path, queue_s=0.0, now=start - 1 + turn / 100, back_s=back_s)
    return peer


@pytest.mark.parametrize("offset_s", [0.0, 1234.5, 4294.0, -77.0])
def test_update__is_the_queue_whatever_the_way_back_and_the_offset(offset_s: float) -> None:
    peer = warmed(Peer(clock=lambda at: at + offset_s), start=100.0)
    assert peer.run(start=100.0, seconds=3.0, queue_s=0.003) < TOLERANCE_S


@pytest.mark.parametrize("start", [4294.9672 - 0.5, 2 * 4294.9672 - 0.5])
@pytest.mark.parametrize("offset_s", [0.0, 0.9, -0.2])
def test_update__over_a_wrap_of_either_clock(start: float, offset_s: float) -> None:
    peer = warmed(Peer(clock=lambda at: at + offset_s), start=start)
    assert peer.run(start=start, seconds=3.0, queue_s=0.003) < TOLERANCE_S


@pytest.mark.parametrize("ppm", [100.0, -100.0])
def test_update__of_a_clock_that_drifts(ppm: float) -> None:
    """Without moving the origin a fast clock would look like 1 ms of queue after 10 s."""
    peer = warmed(Peer(clock=lambda at: 5000.0 + at * (1 + ppm * 1e-6)), start=100.0)
    assert peer.run(start=100.0, seconds=30.0, queue_s=0.003) < TOLERANCE_S
    peer = warmed(Peer(clock=lambda at: 5000.0 + at * (1 + ppm * 1e-6)), start=100.0)
    for turn in range(3000):
        assert peer.report(0, queue_s=0.0, now=100.0 + turn / 100) < TOLERANCE_S, "no queue appears"


@pytest.mark.parametrize("step_s", [1.0, -1.0, 3000.0])
def test_update__of_a_clock_that_steps(step_s: float) -> None:
    peer = warmed(Peer(clock=lambda at: at + (step_s if at >= 101.0 else 0.0)), start=100.0)
    generation = peer.clocks.generation
    for turn in range(300):
        for path in range(len(THERE_S)):
            assert peer.report(path, queue_s=0.0, now=100.0 + turn / 100) < TOLERANCE_S
    assert peer.clocks.generation > generation
    assert peer.run(start=103.0, seconds=3.0, queue_s=0.003) < TOLERANCE_S


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2**32 - 1), st.floats(0, 0.05)), max_size=60))
def test_update__is_bounded_by_the_round_trip_whatever_the_peer_claims(claims: list[tuple[int, int, float]]) -> None:
    peer = Peer(clock=lambda at: at)
    clock = {"us": 0}
    peer.clock = lambda _at: clock["us"] / 1e6
    for turn, (path, claimed_us, queue_s) in enumerate(claims):
        clock["us"] = claimed_us
        found = peer.report(path, queue_s=queue_s, now=100.0 + turn / 100)
        rtt = peer.paths[path][1]
        assert 0.0 <= found <= rtt.latest_s - rtt.min_s + 1e-9
