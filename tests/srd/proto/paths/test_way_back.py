"""Which ack path is the quickest, and when it is named."""

from __future__ import annotations

from srd.proto.paths.rtt import MIN_WINDOW_S
from srd.proto.paths.way_back import FRESH_RTTS, RENEWAL_S, AckPaths
from srd.proto.wire.control import NO_ACK_PATH

LEAST_S = 0.001
RTT_S = 0.01


def note(
    ours: AckPaths, ack_path: tuple[int, int], *, detour_s: float | None, now: float, may_differ: bool = True
) -> None:
    ours.on_ack(ack_path, detour_s=detour_s, least_s=LEAST_S, may_differ=may_differ, rtt_s=RTT_S, now=now)


def test_best__is_the_quickest_that_acks_arrive_over() -> None:
    ours = AckPaths()
    assert ours.best == NO_ACK_PATH
    note(ours, (1, 1), detour_s=0.03, now=10.0)
    assert ours.best == (1, 1)
    note(ours, (2, 2), detour_s=0.0, now=10.001)
    assert ours.best == (2, 2)
    note(ours, (1, 1), detour_s=0.03, now=10.002)
    assert ours.best == (2, 2)
    note(ours, (3, 3), detour_s=0.0005, now=10.003)
    assert ours.best == (3, 3), "as quick, and newer"
    note(ours, (1, 1), detour_s=0.03, now=10.004 + FRESH_RTTS * RTT_S)
    assert ours.best == (1, 1), "the quick one does not answer any more"


def test_is_due__only_while_the_ways_back_differ() -> None:
    ours = AckPaths()
    note(ours, (1, 1), detour_s=0.0009, now=10.0)
    assert not ours.is_due(now=10.0), "noise"
    note(ours, (2, 2), detour_s=0.0011, now=10.0)
    named = [turn for turn in range(200) if ours.is_due(now=10.0 + turn * RENEWAL_S / 4)]
    assert named == list(range(0, int(4 * MIN_WINDOW_S / RENEWAL_S), 4))


def test_best__is_the_last_where_round_trips_are_alike() -> None:
    ours = AckPaths()
    note(ours, (1, 1), detour_s=0.0, now=10.0)
    note(ours, (2, 2), detour_s=0.03, now=10.001, may_differ=False)
    assert ours.best == (2, 2), "there was a queue on the way back"
    assert not ours.differ(now=10.001)
    note(ours, (3, 3), detour_s=None, now=10.002)
    assert ours.best == (3, 3), "an ack that told nothing new"
    note(ours, (1, 1), detour_s=0.0, now=10.003)
    note(ours, (2, 2), detour_s=0.03, now=10.004)
    note(ours, (3, 3), detour_s=None, now=10.005)
    assert ours.best == (1, 1), "how quick the third is, is not known"
