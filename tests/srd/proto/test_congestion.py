"""Controllers by what they do to the window, not by how."""

from __future__ import annotations

import inspect
from random import Random

import pytest

from srd.proto import congestion
from srd.proto.config import ProtocolConfig
from srd.proto.congestion import Controller
from srd.proto.controllers import CONTROLLERS

PACKET_BYTES = 9000
RTT_S = 0.002
TARGET_S = 0.001


def controller(name: str = "majority-delay") -> Controller:
    return CONTROLLERS[name](ProtocolConfig(), packet_bytes=PACKET_BYTES)


class Loop:
    """A controller fed as a sender feeds it: a window of samples and acks each round trip."""

    def __init__(self) -> None:
        self.control = controller()
        self.now = 10.0

    def rounds(self, count: int, *queues_s: float, endpoint_s: float = 0.0, marked: tuple[float, ...] = (0.0,)) -> None:
        """Let `count` round trips pass, in which paths report these queueing delays, and these marks, in turn."""
        for _ in range(count):
            packets = max(int(self.control.window_bytes / PACKET_BYTES), 1)
            for index in range(packets):
                self.now += RTT_S / packets
                queue_s = queues_s[index % len(queues_s)]
                self.control.on_sample(
                    queue_s=queue_s,
                    endpoint_s=endpoint_s,
                    min_rtt_s=RTT_S,
                    variation_s=0.0,
                    marked=marked[index % len(marked)],
                )
                self.control.on_ack(now=self.now, acked_bytes=PACKET_BYTES, rtt_s=RTT_S, late_s=0.0)

    def lose(self, packets: float, *, silent: bool = False) -> None:
        self.control.on_loss(now=self.now, lost_bytes=round(packets * PACKET_BYTES), silent=silent)

    @property
    def packets(self) -> float:
        return self.control.window_bytes / PACKET_BYTES

    @packets.setter
    def packets(self, packets: float) -> None:
        self.control.window_bytes = packets * PACKET_BYTES


def test_majority_delay__doubles_at_first() -> None:
    loop = Loop()
    before = loop.packets
    loop.rounds(1, 0.0)
    assert 1.8 * before <= loop.packets <= 2.2 * before


def test_majority_delay__grows_gently_once_it_has_met_a_queue() -> None:
    loop = Loop()
    loop.rounds(4, 2 * TARGET_S)
    before = loop.packets
    loop.rounds(1, 0.0)  # what was said of the queue is still remembered
    loop.rounds(5, 0.0)
    assert before < loop.packets < 2.2 * before + 12


def test_majority_delay__shrinks_when_most_paths_queue() -> None:
    loop = Loop()
    loop.rounds(3, 0.0)
    before = loop.packets
    loop.rounds(4, 2 * TARGET_S)
    assert loop.packets < 0.8 * before


def test_majority_delay__one_congested_path_in_four_is_left_not_slowed_for() -> None:
    loop = Loop()
    loop.rounds(3, 0.0)
    before = loop.packets
    loop.rounds(4, 0.0, 0.0, 5 * TARGET_S, 0.0)
    assert loop.packets > before


def test_majority_delay__marks_speak_before_the_delay_does() -> None:
    loop, bound = Loop(), 1 - congestion.BETA * 0.25 / 1.25
    loop.rounds(3, 0.0)
    before = loop.packets
    loop.rounds(4, TARGET_S / 4, marked=(1.0,))
    assert bound**4 * before * 0.95 <= loop.packets < 0.8 * before


def test_majority_delay__one_marking_path_in_four_is_left_not_slowed_for() -> None:
    loop = Loop()
    loop.rounds(3, 0.0)
    before = loop.packets
    loop.rounds(4, 0.0, marked=(0.0, 0.0, 1.0, 0.0))
    assert loop.packets > before


def test_majority_delay__a_few_marks_cost_less_than_many() -> None:
    left = []
    for marked in (0.25, 1.0):
        loop = Loop()
        loop.rounds(3, 0.0)
        loop.rounds(2, 0.0, marked=(marked,))
        left.append(loop.packets)
    assert left[0] > 1.1 * left[1]


def test_majority_delay__at_most_half_a_round_trip() -> None:
    loop = Loop()
    loop.rounds(3, 0.0)
    before = loop.packets
    loop.rounds(1, 3.9 * TARGET_S)
    assert loop.packets >= before / 2 - 1


def test_majority_delay__far_above_target_it_adapts_to_what_was_delivered() -> None:
    loop = Loop()
    loop.rounds(5, 0.0)
    assert loop.packets > 300
    for _ in range(40):  # a link that delivers ten packets a round trip, and queues for ten round trips
        for _ in range(10):
            loop.now += RTT_S / 10
            loop.control.on_sample(queue_s=10 * RTT_S, endpoint_s=0.0, min_rtt_s=RTT_S, variation_s=0.0, marked=0.0)
            loop.control.on_ack(now=loop.now, acked_bytes=PACKET_BYTES, rtt_s=RTT_S, late_s=0.0)
    assert loop.packets <= 20


def test_majority_delay__a_slow_receiving_host_slows_it_too() -> None:
    loop = Loop()
    loop.rounds(3, 0.0)
    before = loop.packets
    loop.rounds(5, 0.0, endpoint_s=3 * ProtocolConfig().endpoint_delay_target_s)
    assert loop.packets < 0.8 * before


def test_majority_delay__noise_on_few_samples_does_not_hold_it() -> None:
    """Scheduling noise only adds; with it on one sample in four the window still grows."""
    rng, loop = Random(5), Loop()
    before = loop.packets
    for _ in range(5):
        loop.rounds(1, *(0.004 if rng.random() < 0.25 else 0.0 for _ in range(64)))
    assert loop.packets > before


def test_majority_delay__loss_alone_is_no_signal() -> None:
    loop = Loop()
    loop.rounds(2, 0.0)
    before = loop.packets
    loop.lose(0.49 * before)
    assert loop.packets == before


def test_majority_delay__while_packets_are_lost_delivery_bounds_it() -> None:
    """A link that delivers 50 packets a round trip: the window does not double without end on its loss."""
    loop = Loop()
    for _ in range(60):
        for _ in range(50):
            loop.now += RTT_S / 50
            loop.lose(1)
            loop.control.on_sample(queue_s=0.0, endpoint_s=0.0, min_rtt_s=RTT_S, variation_s=0.0, marked=0.0)
            loop.control.on_ack(now=loop.now, acked_bytes=PACKET_BYTES, rtt_s=RTT_S, late_s=0.0)
    assert 50 <= loop.packets <= 50 * 1.25 + 50 * TARGET_S / RTT_S + 1


@pytest.mark.parametrize("silent", [False, True])
def test_majority_delay__when_most_of_the_window_is_lost_it_is_what_was_delivered(*, silent: bool) -> None:
    loop = Loop()
    loop.rounds(3, 0.0)
    for _ in range(40):  # ten packets a round trip
        loop.now += RTT_S / 10
        loop.control.on_ack(now=loop.now, acked_bytes=PACKET_BYTES, rtt_s=RTT_S, late_s=0.0)
    before = loop.packets
    loop.lose(0.3 * before, silent=silent)
    assert loop.packets == before
    loop.lose(0.3 * before, silent=silent)
    assert loop.packets == pytest.approx(10, abs=1)


def test_majority_delay__most_of_a_window_over_several_round_trips_is_what_loss_does() -> None:
    loop = Loop()
    loop.rounds(3, 0.0)
    before = loop.packets
    for _ in range(6):
        loop.now += 1.01 * RTT_S
        loop.lose(0.3 * before)
    assert loop.packets == before


def test_majority_delay__of_a_lost_window_a_few_packets_are_left_and_no_window_is_raised() -> None:
    loop = Loop()
    loop.lose(16)
    assert loop.packets == congestion.RESTART_PACKETS
    loop.now += 2 * RTT_S
    loop.packets = 1.5
    loop.lose(1.5)
    assert loop.packets == 1.5


# -- what was only late ---------------------------------------------------------------------------------------------


def blow(loop: Loop, kind: str) -> None:
    if kind == "silence":
        loop.control.on_silence(now=loop.now)
    else:
        loop.lose(loop.packets)


@pytest.mark.parametrize("blows", [("loss",), ("silence",), ("loss", "silence"), ("loss", "loss", "silence")])
def test_undo__the_window_is_what_it_was_before_the_first_of_several_blows(blows: tuple[str, ...]) -> None:
    loop = Loop()
    loop.rounds(3, 0.0)
    before = loop.packets
    for kind in blows:
        blow(loop, kind)
        loop.now += 2 * RTT_S
    assert loop.packets <= before / 2
    loop.control.undo()
    assert loop.packets == before
    loop.rounds(1, 0.0)
    assert loop.packets > 1.8 * before, "the start is not over either"


def test_undo__delivery_bounds_it_no_more() -> None:
    """Rule 5 speaks of loss: what was none must not hold the window."""
    loop = Loop()
    loop.rounds(2, 0.0)
    loop.rounds(1, 1.1 * TARGET_S)
    loop.packets = 200.0
    loop.lose(20)
    loop.control.undo()
    for _ in range(50):  # fifty packets a round trip, and no queue
        loop.now += RTT_S / 50
        loop.control.on_sample(queue_s=0.0, endpoint_s=0.0, min_rtt_s=RTT_S, variation_s=0.0, marked=0.0)
        loop.control.on_ack(now=loop.now, acked_bytes=PACKET_BYTES, rtt_s=RTT_S, late_s=0.0)
    assert loop.packets >= 200


def test_undo__of_nothing_changes_nothing() -> None:
    """Nor is anything undone twice."""
    loop = Loop()
    loop.rounds(2, 0.0)
    loop.rounds(2, 3 * TARGET_S)
    before = loop.packets
    loop.control.undo()
    assert loop.packets == before
    blow(loop, "loss")
    loop.control.undo()
    loop.packets = 7.0
    loop.control.undo()
    assert loop.packets == 7


def test_undo__what_was_before_an_old_blow_is_forgotten_with_the_next() -> None:
    loop = Loop()
    loop.rounds(3, 0.0)
    blow(loop, "loss")
    loop.now += (congestion.LOSS_MEMORY_RTTS + 1) * RTT_S
    loop.packets = 20.0
    blow(loop, "loss")
    loop.control.undo()
    assert loop.packets == 20


# -- fairness -------------------------------------------------------------------------------------------------------


def test_target_s__falls_as_the_window_grows_to_where_it_is_not_scaled() -> None:
    control = CONTROLLERS["majority-delay"](ProtocolConfig(), packet_bytes=PACKET_BYTES)
    assert isinstance(control, congestion.MajorityDelay)
    targets_s = []
    for packets in (0.2, 1, 2, 5, 20, congestion.SCALING_MAX_PACKETS, 1000):
        control.window_bytes = packets * PACKET_BYTES
        targets_s.append(control.target_s(RTT_S))
    assert targets_s == sorted(targets_s, reverse=True)
    assert targets_s[0] == targets_s[1] == pytest.approx(TARGET_S + 0.9 * congestion.SCALING_RTTS * RTT_S)
    assert targets_s[-1] == targets_s[-2] == pytest.approx(TARGET_S)
    assert targets_s[2] - targets_s[3] > 2 * (targets_s[4] - targets_s[5]), "most where windows are small"


def test_majority_delay__of_two_that_see_the_same_queue_the_smaller_grows_and_the_larger_shrinks() -> None:
    small, large = Loop(), Loop()
    for loop, packets in ((small, 4.0), (large, 40.0)):
        loop.rounds(4, 2 * TARGET_S)  # the start is over
        loop.packets = packets
        loop.rounds(8, 1.2 * TARGET_S)
    assert small.packets > 4
    assert large.packets < 40


def test_majority_delay__a_few_slow_samples_do_not_end_the_start() -> None:
    loop = Loop()
    for _ in range(congestion.START_SAMPLES - 1):
        loop.now += RTT_S
        loop.control.on_sample(queue_s=3 * TARGET_S, endpoint_s=0.0, min_rtt_s=RTT_S, variation_s=0.0, marked=0.0)
        loop.control.on_ack(now=loop.now, acked_bytes=PACKET_BYTES, rtt_s=RTT_S, late_s=0.0)
    before = loop.packets
    assert before >= ProtocolConfig().initial_window_packets
    loop.control.on_sample(queue_s=3 * TARGET_S, endpoint_s=0.0, min_rtt_s=RTT_S, variation_s=0.0, marked=0.0)
    loop.control.on_ack(now=loop.now, acked_bytes=PACKET_BYTES, rtt_s=RTT_S, late_s=0.0)
    assert loop.packets < before


def test_majority_delay__silence_starts_again_from_little() -> None:
    loop = Loop()
    loop.rounds(4, 0.0)
    loop.control.on_silence(now=loop.now)
    assert loop.packets == 2
    loop.rounds(1, 0.0)
    assert loop.packets == pytest.approx(4, abs=1)


def test_majority_delay__silence_raises_no_window() -> None:
    loop = Loop()
    loop.packets = 0.5
    loop.control.on_silence(now=loop.now)
    assert loop.packets == 0.5


def test_majority_delay__never_below_its_floor_nor_stuck_there() -> None:
    loop = Loop()
    loop.rounds(400, 50 * RTT_S)
    assert 0 < loop.packets <= 2
    loop.rounds(60, 0.0)
    assert loop.packets > 16


def test_fixed__never_changes() -> None:
    control = controller("fixed")
    before = control.window_bytes
    for step in range(50):
        control.on_sample(queue_s=1.0, endpoint_s=1.0, min_rtt_s=RTT_S, variation_s=0.0, marked=0.0)
        control.on_ack(now=10.0 + step, acked_bytes=PACKET_BYTES, rtt_s=RTT_S, late_s=0.0)
        control.on_loss(now=10.0 + step, lost_bytes=PACKET_BYTES, silent=False)
        control.on_silence(now=10.0 + step)
    assert control.window_bytes == before == ProtocolConfig().initial_window_packets * PACKET_BYTES


@pytest.mark.parametrize("name", CONTROLLERS)
def test_controllers__pace_faster_than_the_window(name: str) -> None:
    assert controller(name).pacing_gain > 1


def test_controllers__config_names_one() -> None:
    assert ProtocolConfig().controller in CONTROLLERS


def test_constants__have_a_reason_beside_them() -> None:
    """DESIGN: every constant has its unit and its source beside it."""
    lines = inspect.getsource(congestion).splitlines()
    constants = [
        i for i, line in enumerate(lines) if line[:1].isupper() and " = " in line and "CONTROLLERS" not in line
    ]
    assert constants
    for index in constants:
        assert lines[index + 1].startswith('"""'), lines[index]


def test_majority_delay__delay_that_does_not_fall_with_the_window_does_not_starve_it() -> None:
    """Round trips of 2 ms that are late by 4 to 12 ms whatever is sent: a packet a round trip is no queue."""
    rng, loop = Random(7), Loop()
    windows = []
    for step in range(600):
        loop.now += RTT_S
        for _ in range(max(int(loop.packets), 1)):
            queue_s = rng.uniform(0.004, 0.012)
            loop.control.on_sample(queue_s=queue_s, endpoint_s=0.0, min_rtt_s=RTT_S, variation_s=0.003, marked=0.0)
            loop.control.on_ack(now=loop.now, acked_bytes=PACKET_BYTES, rtt_s=RTT_S, late_s=0.0)
        windows.append(loop.packets if step > 200 else 1.0)
    assert min(windows) > 0.3
    assert sum(windows) / len(windows) > 0.8


def test_majority_delay__a_noisy_host_is_not_taken_for_a_queue() -> None:
    """The same delay speaks for slowing down where round trips are steady, and not where they vary by as much."""
    queue_s = 1.5 * TARGET_S
    steady, noisy = controller("majority-delay"), controller("majority-delay")
    for step in range(400):
        for control, variation_s in ((steady, 0.0), (noisy, TARGET_S)):
            control.on_sample(queue_s=queue_s, endpoint_s=0.0, min_rtt_s=RTT_S, variation_s=variation_s, marked=0.0)
            control.on_ack(now=10.0 + step * RTT_S, acked_bytes=PACKET_BYTES, rtt_s=RTT_S, late_s=0.0)
    assert steady.window_bytes < 8 * PACKET_BYTES < noisy.window_bytes
