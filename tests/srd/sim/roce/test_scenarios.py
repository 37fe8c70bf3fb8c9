"""srd.sim.roce: what must never change: PFC blocks a victim and locks up, dropping switches do neither; runs repeat.

That SRD does neither is checked by `scripts/bench roce`, with bounds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import pytest

from netns.backends.virtual.lossless.profile import WatchdogProfile
from srd.sim.roce import scenarios
from srd.sim.roce.play import CONTENDERS, play, prepare

PAUSING = ("roce", "dcqcn", "dcqcn-firmware")


@pytest.mark.parametrize("name", ["roce", "irn"])
def test_victim__waits_behind_pauses_only(name: str) -> None:
    figures = scenarios.victim(CONTENDERS[name], seed=1)
    if name == "roce":
        assert figures["far_slowdown"] > 2
        assert figures["pauses"] > 0
    else:
        assert figures["far_slowdown"] < 1.1
        assert figures["pauses"] == 0


@pytest.mark.parametrize("name", ["roce", "dcqcn-firmware", "irn", "cubic"])
@pytest.mark.parametrize("scenario", [scenarios.ring_deadlock, scenarios.tree_deadlock])
def test_deadlock__of_pausing_switches_only(name: str, scenario: Callable[..., scenarios.Figures]) -> None:
    figures = scenario(CONTENDERS[name], seed=2)
    assert figures["deadlock"] == (name in PAUSING)
    assert (figures["unfinished"] > 0) == (name in PAUSING)


def test_watchdog__frees_the_ring_by_dropping() -> None:
    watched = replace(CONTENDERS["roce"], watchdog=WatchdogProfile())
    figures = scenarios.ring_deadlock(watched, seed=1)
    assert figures["storms"] > 0
    assert figures["discarded"] > 0
    assert figures["deadlock"] == 0


def test_lossless__drops_nothing_and_keeps_the_port_busy() -> None:
    figures = scenarios.incast(CONTENDERS["roce"], senders=16, size_bytes=1_000_000, seed=1)
    assert figures["dropped"] == 0
    assert figures["pauses"] > 0
    assert figures["max_over_ideal_ratio"] < 1.02


@pytest.mark.long
def test_all_reduce__goes_around_a_dead_link_with_many_paths() -> None:
    """A queue pair has one path, so it waits until the link is back; SRD uses its others."""
    ours = scenarios.all_reduce(CONTENDERS["srd"], seed=1, size_bytes=2_000_000)
    theirs = scenarios.all_reduce(CONTENDERS["roce"], seed=1, size_bytes=2_000_000)
    assert ours["dead_link_us"] < 20_000
    assert theirs["dead_link_us"] > 50_000


@pytest.mark.parametrize("name", CONTENDERS)
def test_the_same_seed_gives_the_same_times(name: str) -> None:
    def times() -> list[float]:
        topology, flows, victims = scenarios.victim_parts(seed=3)
        short = [replace(flow, size_bytes=200_000) for flow in (*victims.values(), *flows)]
        return play(prepare(CONTENDERS[name], topology, short, seed=3), limit_s=1.0).times_us

    first = times()
    assert math.inf not in first
    assert times() == first
