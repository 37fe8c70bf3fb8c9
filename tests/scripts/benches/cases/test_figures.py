"""scripts.benches.cases: figures match their definitions: ideals by hand, and bounds."""

from __future__ import annotations

import math

import pytest

from scripts.benches.cases import blackhole, capacity, fair, incast, messages, permutation, placement_scaling
from scripts.benches.fabrics import PACKET_BYTES
from scripts.benches.reference_fabric import LINK, bulk, fabric
from srd.proto.wire.data import Burst
from srd.sim.presets import MICROSECOND_FABRIC


def test_incast__ideal_by_hand() -> None:
    # 2 messages of 2 packets: 2 x (10,000 + 2 x 98) bytes at 100 Gbit/s; 3 links of 9,014 bytes and 4 x 5 us before.
    expected_us = 20 + 3 * 9014 * 8 / 100_000 + 2 * 10_196 * 8 / 100_000
    assert incast._ideal_us(2, message_bytes=10_000, payload_bytes=8916) == pytest.approx(expected_us)


def test_incast__ideal_is_a_lower_bound() -> None:
    figures = incast.measure(1, 0.0, senders=4, message_bytes=200_000).ours
    # netem rounds the time of each packet down to a nanosecond: 92 of them are up to 0.1 us of 87.
    assert 0.999 <= figures["max_over_ideal_ratio"] < 10
    assert figures["spread_ratio"] == pytest.approx(figures["max_us"] / figures["min_us"])


def test_permutation__ideal_is_a_lower_bound() -> None:
    times_us = permutation._times_us(seed=1, pairs=1, config=MICROSECOND_FABRIC)
    assert len(times_us) == permutation.MESSAGES
    assert min(times_us) >= permutation._ideal_us()
    assert min(times_us) < 1.1 * permutation._ideal_us()


@pytest.mark.compiled
def test_slow_path_and_loss__capacity_fractions() -> None:
    slow = capacity.slow_path(1, 0.05).ours
    assert 0.5 < slow["capacity_fraction"] <= 1.02  # what was queued at the start of 50 ms may land in them
    assert slow["capacity_mbps"] == pytest.approx(1775 * 8916 / 9014)
    lossy = capacity.loss(1, 0.05).ours
    assert all(0.5 < value <= 1.05 for value in lossy.values())


@pytest.mark.compiled
def test_ecn__marks_keep_the_queue_short_and_lose_nothing() -> None:
    round_ = capacity.ecn(1, 0.3)
    marked, unmarked = round_.ours, round_.baselines["unmarked"]
    assert marked["queue_ratio"] == marked["mean_queue_ms"] / unmarked["mean_queue_ms"] < 0.75
    assert marked["lost_fraction"] < 0.01 < unmarked["lost_fraction"]
    assert 0.93 < marked["capacity_fraction"] < 1.05
    assert (marked["marked_packets"] > 0, unmarked["marked_packets"]) == (True, 0)


def test_long_fat__a_buffer_of_one_bdp() -> None:
    shape = capacity.long_fat_fabric(seed=1).link("leaf2-spine1").shape_ab
    assert shape is not None
    bdp_bytes = shape.rate_bps / 8 * 2 * shape.delay_us / 1e6
    assert shape.limit_packets * PACKET_BYTES == pytest.approx(1.5 * bdp_bytes, rel=0.01)  # half in the line


def test_jain_index() -> None:
    assert fair.jain_index([5, 5, 5]) == 1
    assert fair.jain_index([1, 0, 0, 0]) == 0.25
    assert fair.jain_index([0, 0]) == 0


def test_messages__drops_the_second_packet_of_every_tenth_message_once() -> None:
    one_loss = messages.OneLoss()

    def burst(message: int, offset: int) -> Burst:
        return Burst("a", 0, 0, 0, 0, 3, 0, message, 5000, 0, offset, 0, 0, 3000, 1000)

    assert [one_loss(burst(10, 0), index) for index in range(3)] == [False, True, False]
    assert not one_loss(burst(10, 1000), 0)  # its retransmission
    assert one_loss(burst(20, 1000), 0)
    assert not one_loss(burst(11, 1000), 0)
    assert one_loss.lost == {10, 20}


@pytest.mark.compiled
def test_messages__measures() -> None:
    figures = messages.measure(1, 0.0).ours
    assert 0.5 < figures["undisturbed_ratio"] < 2
    assert figures["last_ms"] > 1000 * messages.MESSAGES * messages.MESSAGE_BYTES * 8 / 1e9


def test_blackhole__repair_is_detected_when_the_link_carries_packets() -> None:
    running = bulk(fabric(spines=2, name="x", seed=1), seed=1)
    now_ns = running.simulation.now_ns
    link = running.simulation.fabric.links["leaf1", "spine1"]
    repair = blackhole.Repair(running, link, now_ns)
    idle = blackhole.Repair(running, running.simulation.fabric.links["spine1", "leaf1"], now_ns)
    repair.watch(now_ns)
    idle.watch(now_ns)
    running.simulation.run(seconds=0.02)
    fastest_s = blackhole.IN_USE_BYTES * 8 / LINK.rate_bps
    assert fastest_s < repair.seconds < 4 * fastest_s
    assert math.isinf(idle.seconds)  # ACKs alone do not count


def test_placement__cluster_of_kueue_and_all_figures() -> None:
    nodes, usage = placement_scaling.cluster(600)
    racks = {tuple(node.labels[level] for level in placement_scaling.LAYERS) for node in nodes}
    assert len(racks) == math.ceil(600 / 16)
    assert len({rack[:2] for rack in racks}) == math.ceil(600 / 256)
    assert len(usage) == 75
    figures = placement_scaling.measure()
    assert all(value > 0 for value in figures.values())
    assert figures["assign_2500_ms"] == max(value for key, value in figures.items() if key.startswith("assign_2500_"))
    assert {wanted.figure for wanted in placement_scaling.WANTED} <= set(figures)
