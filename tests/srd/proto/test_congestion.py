"""Controllers by what they do to the window, not by how."""

from __future__ import annotations

import inspect
from random import Random

import pytest

from srd.proto import congestion
from srd.proto.config import ProtocolConfig
from srd.proto.congestion import Controller, DeliveryRate
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
                self.control.on_ack(now=self.now, acked_bytes=PACKET_BYTES, rtt_s=RTT_S, min_rtt_s=RTT_S, late_s=0.0)

    @property
    def packets(self) -> float:
        return self.control.window_bytes / PACKET_BYTES


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
            loop.control.on_ack(now=loop.now, acked_bytes=PACKET_BYTES, rtt_s=RTT_S, min_rtt_s=RTT_S, late_s=0.0)
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
    loop.control.on_loss(now=loop.now)
    assert loop.packets == before


def test_majority_delay__while_packets_are_lost_delivery_bounds_it() -> None:
    """A link that delivers 50 packets a round trip: the window does not double without end on its loss."""
    loop = Loop()
    for _ in range(60):
        for _ in range(50):
            loop.now += RTT_S / 50
            loop.control.on_loss(now=loop.now)
            loop.control.on_sample(queue_s=0.0, endpoint_s=0.0, min_rtt_s=RTT_S, variation_s=0.0, marked=0.0)
            loop.control.on_ack(now=loop.now, acked_bytes=PACKET_BYTES, rtt_s=RTT_S, min_rtt_s=RTT_S, late_s=0.0)
    assert 50 <= loop.packets <= 50 * 1.25 + 50 * TARGET_S / RTT_S + 1


def test_majority_delay__silence_starts_again_from_little() -> None:
    loop = Loop()
    loop.rounds(4, 0.0)
    loop.control.on_silence(now=loop.now)
    assert loop.packets == 2
    loop.rounds(1, 0.0)
    assert loop.packets == pytest.approx(4, abs=1)


def test_majority_delay__silence_raises_no_window() -> None:
    loop = Loop()
    loop.control.window_bytes = 0.5 * PACKET_BYTES
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
        control.on_ack(now=10.0 + step, acked_bytes=PACKET_BYTES, rtt_s=RTT_S, min_rtt_s=RTT_S, late_s=0.0)
        control.on_loss(now=10.0 + step)
        control.on_silence(now=10.0 + step)
    assert control.window_bytes == before == ProtocolConfig().initial_window_packets * PACKET_BYTES


@pytest.mark.parametrize("name", CONTROLLERS)
def test_controllers__pace_faster_than_the_window(name: str) -> None:
    assert controller(name).pacing_gain > 1


def test_controllers__config_names_one() -> None:
    assert ProtocolConfig().controller in CONTROLLERS


def test_delivery_rate__is_bytes_over_time() -> None:
    rate = DeliveryRate()
    for step in range(101):
        rate.on_ack(now=10.0 + step * 0.001, acked_bytes=1000, span_s=0.01)
    assert rate.max_bytes_per_s == pytest.approx(1e6, rel=0.1)
    assert rate.last_span_bytes == pytest.approx(10_000, rel=0.1)


def test_delivery_rate__forgets_after_ten_spans() -> None:
    rate = DeliveryRate()
    for step in range(200):
        rate.on_ack(now=10.0 + step * 0.01, acked_bytes=10_000 if step < 100 else 100, span_s=0.01)
    assert rate.max_bytes_per_s == pytest.approx(1e4, rel=0.1)


def test_constants__have_a_reason_beside_them() -> None:
    """DESIGN: every constant has its unit and its source beside it."""
    lines = inspect.getsource(congestion).splitlines()
    constants = [
        i for i, line in enumerate(lines) if line[:1].isupper() and " = " in line and "CONTROLLERS" not in line
    ]
    assert constants
    for index in constants:
        assert lines[index + 1].startswith('"""'), lines[index]


def test_majority_delay__a_noisy_host_is_not_taken_for_a_queue() -> None:
    """The same delay speaks for slowing down where round trips are steady, and not where they vary by as much."""
    queue_s = 1.5 * TARGET_S
    steady, noisy = controller("majority-delay"), controller("majority-delay")
    for step in range(400):
        for control, variation_s in ((steady, 0.0), (noisy, TARGET_S)):
            control.on_sample(queue_s=queue_s, endpoint_s=0.0, min_rtt_s=RTT_S, variation_s=variation_s, marked=0.0)
            control.on_ack(now=10.0 + step * RTT_S, acked_bytes=PACKET_BYTES, rtt_s=RTT_S, min_rtt_s=RTT_S, late_s=0.0)
    assert steady.window_bytes < PACKET_BYTES < noisy.window_bytes
