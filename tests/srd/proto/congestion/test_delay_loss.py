"""The default controller: losses and spurious losses."""

from __future__ import annotations

import pytest

from srd.proto.congestion import delay
from tests.srd.proto.control_loop import RTT_S, TARGET_S, Loop, ack, sample


def test_majority_delay__loss_alone_is_no_signal() -> None:
    loop = Loop()
    before = loop.grown(2)
    loop.lose(0.49 * before)
    assert loop.packets == before


def test_majority_delay__while_packets_are_lost_delivery_bounds_it() -> None:
    """A link that delivers 50 packets a round trip: the window does not double without end on its loss."""
    loop = Loop()
    for _ in range(60):
        for _ in range(50):
            loop.now += RTT_S / 50
            loop.lose(1)
            sample(loop.controller, loop.now)
            ack(loop.controller, loop.now)
    assert 50 <= loop.packets <= 50 * 1.25 + 50 * TARGET_S / RTT_S + 1


@pytest.mark.parametrize("by_timeout", [False, True])
def test_majority_delay__when_most_of_it_is_lost_becomes_what_was_delivered(*, by_timeout: bool) -> None:
    loop = Loop()
    loop.grown()
    for _ in range(40):  # ten packets a round trip
        loop.now += RTT_S / 10
        ack(loop.controller, loop.now)
    before = loop.packets
    loop.lose(0.3 * before, by_timeout=by_timeout)
    assert loop.packets == before
    loop.lose(0.3 * before, by_timeout=by_timeout)
    assert loop.packets == pytest.approx(10, abs=1)


def test_majority_delay__a_window_lost_over_several_round_trips_changes_nothing() -> None:
    loop = Loop()
    before = loop.grown()
    for _ in range(6):
        loop.now += 1.01 * RTT_S
        loop.lose(0.3 * before)
    assert loop.packets == before


def test_majority_delay__a_lost_window_restarts_small_and_halves_with_each_further_loss() -> None:
    loop = Loop()
    loop.lose(16)
    assert loop.packets == delay.RESTART_PACKETS
    for lost in (6, 3, 1.5):
        loop.now += 1.0
        loop.lose(lost)
        assert loop.packets == lost / 2
    for _ in range(10):
        loop.now += 1.0
        loop.lose(loop.packets)
    assert loop.packets == delay.MIN_HALVED_PACKETS


def test_majority_delay__is_not_halved_again_after_a_delivery() -> None:
    loop = Loop()
    loop.lose(16)
    loop.now += 2 * RTT_S
    ack(loop.controller, loop.now)
    before = loop.packets
    loop.lose(3)
    assert loop.packets == before


@pytest.mark.parametrize(("lost", "left", "falls"), [(8, 0, True), (8, 7, True), (8, 9, False), (5, 0, False)])
def test_majority_delay__compares_losses_with_what_was_in_flight_not_with_the_window(
    lost: int, left: int, *, falls: bool
) -> None:
    """A message of a few packets in a large window; one loss of one packet is not significant."""
    loop = Loop()
    before = loop.grown()
    loop.now += 10 * RTT_S
    loop.lose(lost, left=left)
    assert (loop.packets < before) == falls


# -- spurious losses ------------------------------------------------------------------------------------------------


def reduce(loop: Loop, kind: str) -> None:
    if kind == "timeout":
        loop.controller.on_all_paths_timeout(now=loop.now)
    else:
        loop.lose(loop.packets)


@pytest.mark.parametrize("reductions", [("loss",), ("timeout",), ("loss", "timeout"), ("loss", "loss", "timeout")])
def test_on_spurious_loss__restores_the_window_before_the_first_of_several_reductions(
    reductions: tuple[str, ...],
) -> None:
    loop = Loop()
    before = loop.grown()
    for kind in reductions:
        reduce(loop, kind)
        loop.now += 2 * RTT_S
    assert loop.packets <= before / 2
    loop.controller.on_spurious_loss()
    assert loop.packets == before
    assert loop.grown(1) > 1.8 * before, "slow start continues, too"


def test_on_spurious_loss__ends_the_bound_by_delivery() -> None:
    """Rule 5 applies to losses; a spurious one must not limit the window."""
    loop = Loop()
    loop.rounds(2, 0.0)
    loop.rounds(1, 1.1 * TARGET_S)
    loop.packets = 200.0
    loop.lose(20)
    loop.controller.on_spurious_loss()
    loop.deliver(50, per_rtt=50)
    assert loop.packets >= 200


def test_on_spurious_loss__without_a_reduction_changes_nothing() -> None:
    """A window is restored once."""
    loop = Loop()
    loop.rounds(2, 0.0)
    loop.rounds(2, 3 * TARGET_S)
    before = loop.packets
    loop.controller.on_spurious_loss()
    assert loop.packets == before
    reduce(loop, "loss")
    loop.controller.on_spurious_loss()
    loop.packets = 7.0
    loop.controller.on_spurious_loss()
    assert loop.packets == 7


def test_on_spurious_loss__restores_no_window_of_an_old_reduction() -> None:
    loop = Loop()
    loop.rounds(3, 0.0)
    reduce(loop, "loss")
    loop.now += (delay.LOSS_MEMORY_RTTS + 1) * RTT_S
    loop.packets = 20.0
    reduce(loop, "loss")
    loop.controller.on_spurious_loss()
    assert loop.packets == 20
