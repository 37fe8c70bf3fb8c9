"""The default controller, by its effect on the window."""

from __future__ import annotations

import math
from random import Random

import pytest

from srd.proto.config import ProtocolConfig
from srd.proto.congestion import delay
from tests.srd.proto.control_loop import PACKET_BYTES, RTT_S, TARGET_S, Loop, ack, controller, sample


def test_majority_delay__doubles_in_slow_start() -> None:
    loop = Loop()
    before = loop.packets
    assert 1.8 * before <= loop.grown(1) <= 2.2 * before


def test_majority_delay__does_not_grow_unless_cwnd_limited() -> None:
    loop = Loop()
    before = loop.packets
    for _ in range(100):
        loop.now += RTT_S / 10
        sample(loop.controller, loop.now)
        ack(loop.controller, loop.now, cwnd_limited=False)
    assert loop.packets == before


def test_majority_delay__grows_additively_after_the_first_queue() -> None:
    loop = Loop()
    loop.rounds(4, 2 * TARGET_S)
    before = loop.packets
    loop.rounds(1, 0.0)  # the reports of the queue are still in the window
    loop.rounds(5, 0.0)
    assert before < loop.packets < 2.2 * before + 12


MARKED = (1 - delay.BETA * 0.25 / 1.25) ** 4 * 0.95


@pytest.mark.parametrize(
    ("rounds", "queues_s", "marked", "least", "most"),
    [
        pytest.param(4, (2 * TARGET_S,), (0.0,), 0.0, 0.8, id="most paths queue"),
        pytest.param(4, (0.0, 0.0, 5 * TARGET_S, 0.0), (0.0,), 1.0001, math.inf, id="one of four queues"),
        pytest.param(4, (TARGET_S / 4,), (1.0,), MARKED, 0.8, id="marks before delay"),
        pytest.param(4, (0.0,), (0.0, 0.0, 1.0, 0.0), 1.0001, math.inf, id="one of four marks"),
        pytest.param(1, (3.9 * TARGET_S,), (0.0,), 0.49, math.inf, id="at most half a round trip"),
    ],
)
def test_majority_delay__shrinks_on_the_queues_and_marks_of_most_paths(
    rounds: int, queues_s: tuple[float, ...], marked: tuple[float, ...], least: float, most: float
) -> None:
    loop = Loop()
    before = loop.grown()
    loop.rounds(rounds, *queues_s, marked=marked)
    assert least * before <= loop.packets < most * before


def test_majority_delay__a_few_marks_cost_less_than_many() -> None:
    few, many = Loop(), Loop()
    for loop, marked in ((few, 0.25), (many, 1.0)):
        loop.grown()
        loop.rounds(2, 0.0, marked=(marked,))
    assert few.packets > 1.1 * many.packets


def test_majority_delay__far_above_target_becomes_what_was_delivered() -> None:
    loop = Loop()
    assert loop.grown(5) > 300
    loop.deliver(400, queue_s=10 * RTT_S)  # a link that delivers ten packets a round trip, and queues for ten of them
    assert loop.packets <= 20


@pytest.mark.parametrize(("pattern_s", "shrinks"), [((0.02,), True), ((0.02, 0.02, 0.02, 0.001), False)])
def test_majority_delay__shrinks_on_endpoint_delay_that_is_not_rare(
    pattern_s: tuple[float, ...], *, shrinks: bool
) -> None:
    loop = Loop()
    before = loop.grown()
    for step in range(100):
        loop.deliver(10, endpoint_s=pattern_s[step % len(pattern_s)])
    assert loop.packets < before / 2 if shrinks else loop.packets > before


def test_majority_delay__constant_scheduling_delay_leaves_the_initial_window() -> None:
    """On a machine with more processes than cores every packet has such a delay."""
    loop = Loop()
    loop.grown()
    loop.deliver(10_000, endpoint_s=0.02)
    assert loop.packets >= ProtocolConfig().initial_window_packets / 2


def test_majority_delay__noise_on_few_samples_does_not_stop_growth() -> None:
    """Scheduling noise only adds; with it on one sample in four the window still grows."""
    rng, loop = Random(5), Loop()
    before = loop.packets
    for _ in range(5):
        loop.rounds(1, *(0.004 if rng.random() < 0.25 else 0.0 for _ in range(64)))
    assert loop.packets > before


# -- fairness -------------------------------------------------------------------------------------------------------


def test_target_s__falls_as_the_window_grows() -> None:
    control = controller()
    assert isinstance(control, delay.MajorityDelay)
    targets_s = []
    for packets in (0.2, 1, 2, 5, 20, delay.SCALING_MAX_PACKETS, 1000):
        control.window_bytes = packets * PACKET_BYTES
        targets_s.append(control.target_s(RTT_S))
    assert targets_s == sorted(targets_s, reverse=True)
    assert targets_s[0] == targets_s[1] == pytest.approx(TARGET_S + 0.9 * delay.SCALING_RTTS * RTT_S)
    assert targets_s[-1] == targets_s[-2] == pytest.approx(TARGET_S)
    assert targets_s[2] - targets_s[3] > 2 * (targets_s[4] - targets_s[5]), "most where windows are small"


def test_majority_delay__of_two_with_the_same_queue_the_smaller_grows_and_the_larger_shrinks() -> None:
    small, large = Loop(), Loop()
    for loop, packets in ((small, 4.0), (large, 40.0)):
        loop.rounds(4, 2 * TARGET_S)  # slow start is over
        loop.packets = packets
        loop.rounds(8, 1.2 * TARGET_S)
    assert small.packets > 4
    assert large.packets < 40


def test_majority_delay__a_few_slow_samples_do_not_end_slow_start() -> None:
    loop = Loop()
    for _ in range(delay.START_SAMPLES - 1):
        loop.now += RTT_S
        sample(loop.controller, loop.now, queue_s=3 * TARGET_S)
        ack(loop.controller, loop.now)
    before = loop.packets
    assert before >= ProtocolConfig().initial_window_packets
    sample(loop.controller, loop.now, queue_s=3 * TARGET_S)
    ack(loop.controller, loop.now)
    assert loop.packets < before


def test_majority_delay__a_timeout_of_all_paths_restarts_it() -> None:
    loop = Loop()
    loop.grown(4)
    loop.controller.on_all_paths_timeout(now=loop.now)
    assert loop.packets == 2
    assert loop.grown(1) == pytest.approx(4, abs=1)


def test_majority_delay__a_timeout_of_all_paths_never_raises_it() -> None:
    loop = Loop()
    loop.packets = 0.5
    loop.controller.on_all_paths_timeout(now=loop.now)
    assert loop.packets == 0.5


def test_majority_delay__never_below_its_minimum_nor_stuck_there() -> None:
    loop = Loop()
    loop.rounds(400, 50 * RTT_S)
    assert 0 < loop.packets <= 2
    loop.rounds(60, 0.0)
    assert loop.packets > 16


def test_majority_delay__delay_that_does_not_fall_with_the_window_stops_shrinking_it() -> None:
    """Round trips of 2 ms vary by 4 to 12 ms whatever the window: one packet in flight makes no queue."""
    rng, loop = Random(7), Loop()
    windows = []
    for step in range(600):
        loop.now += RTT_S
        for _ in range(max(int(loop.packets), 1)):
            queue_s = rng.uniform(0.004, 0.012)
            sample(loop.controller, loop.now, queue_s=queue_s, variation_s=0.003)
            ack(loop.controller, loop.now)
        windows.append(loop.packets if step > 200 else 1.0)
    assert min(windows) > 0.3
    assert sum(windows) / len(windows) > 0.8


def test_majority_delay__a_noisy_host_is_no_queue() -> None:
    """The same delay shrinks the window where round trips are steady, and not where they vary by as much."""
    queue_s = 1.5 * TARGET_S
    steady, noisy = controller(), controller()
    for step in range(400):
        now = 10.0 + step * RTT_S
        for control, variation_s in ((steady, 0.0), (noisy, TARGET_S)):
            sample(control, now, queue_s=queue_s, variation_s=variation_s)
            ack(control, now)
    assert steady.window_bytes < 8 * PACKET_BYTES < noisy.window_bytes


def long_path(*queues_s: float, rounds: int, loop: Loop, rtt_s: float = 0.1) -> None:
    """Round trips of a long path, each with a window of samples of the queue that the packets before them met."""
    for queue_s in queues_s * rounds:
        packets = max(int(loop.packets), 1)
        for _ in range(packets):
            loop.now += (rtt_s + queue_s) / packets
            sample(loop.controller, loop.now, queue_s=queue_s, min_rtt_s=rtt_s)
            ack(loop.controller, loop.now, rtt_s=rtt_s + queue_s)


def test_majority_delay__the_start_of_a_long_path_slows_down_before_the_target() -> None:
    loop = Loop()
    long_path(0.0, rounds=2, loop=loop)
    before = loop.packets
    long_path(0.03, rounds=1, loop=loop)
    assert 1.2 * before < loop.packets < 1.5 * before


def test_majority_delay__samples_sent_before_a_decrease_do_not_make_another() -> None:
    """On a long path; the round trip that counts is that of the queue, not the smoothed one."""
    loop = Loop()
    long_path(0.0, rounds=2, loop=loop)
    packets = [loop.packets]
    for _ in range(3):
        for _ in range(int(loop.packets)):
            loop.now += 0.11 / loop.packets
            sample(loop.controller, loop.now, queue_s=0.15, min_rtt_s=0.1)
            ack(loop.controller, loop.now, rtt_s=0.1)
        packets.append(loop.packets)
    assert packets[1] < packets[0]
    assert packets[2] == packets[1], "all of its samples were sent before"
    assert packets[3] < packets[2]


def test_target_s__follows_jitter_and_not_the_swings_of_a_queue() -> None:
    """Both delays lie between 0 and 16 ms and deviate by as much; one of them changes slowly."""
    rng = Random(1)
    swinging, jittery = controller(), controller()
    for step in range(1000):
        phase = step % 128
        for control, queue_s in ((swinging, 0.00025 * min(phase, 128 - phase)), (jittery, rng.uniform(0.0, 0.016))):
            sample(control, 10.0 + step * 0.001, queue_s=queue_s, min_rtt_s=0.02, variation_s=0.004)
    assert isinstance(swinging, delay.MajorityDelay)
    assert isinstance(jittery, delay.MajorityDelay)
    swinging.window_bytes = jittery.window_bytes = 1000 * PACKET_BYTES
    target_s = 0.02 * ProtocolConfig().delay_target_rtts
    assert swinging.target_s(0.02) < 1.2 * target_s
    assert jittery.target_s(0.02) == pytest.approx(target_s * (1 + delay.MAX_JITTER))


def test_target_s__of_a_long_path_falls_after_the_start() -> None:
    loop = Loop()
    control = loop.controller
    assert isinstance(control, delay.MajorityDelay)
    large = delay.SCALING_MAX_PACKETS
    targets_s = []
    for queues_s in ((0.0, 0.0), (0.06,), (0.0,) * 4, (0.0,) * 36):
        long_path(*queues_s, rounds=1, loop=loop)
        loop.packets = large
        targets_s.append(control.target_s(0.1))
    assert targets_s[0] == pytest.approx(0.05)
    assert targets_s[0] > targets_s[1] > targets_s[2] > 0.03 > targets_s[3]
    assert targets_s[3] == pytest.approx(0.1 * delay.LONG_TARGET_RTTS, rel=0.1)
    control.on_all_paths_timeout(now=loop.now)
    loop.packets = large
    assert control.target_s(0.1) == pytest.approx(0.05)
