"""netns.backends.virtual.lossless: thresholds, headroom, marks; no byte is lost, whatever comes and goes."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from netns.backends.virtual.lossless.profile import ClassProfile, RedProfile, headroom_bytes
from netns.backends.virtual.lossless.shared_buffer import PriorityGroup, SharedBuffer
from netns.backends.virtual.lossless.switch import longest_pause_ns

LOSSLESS = ClassProfile(lossless=True, alpha=1 / 8)
LOSSY = ClassProfile(alpha=1.0)


def buffer_of(*groups: PriorityGroup, total_bytes: int = 1_000_000) -> SharedBuffer:
    return SharedBuffer(total_bytes=total_bytes, groups=list(groups), resume_offset_bytes=2_000)


def test_lossless__fills_reserve_then_shared_then_headroom_then_drops() -> None:
    group = PriorityGroup(replace(LOSSLESS, static_bytes=3_000), reserve_bytes=2_000, headroom_bytes=2_000)
    buffer = buffer_of(group)
    places = []
    for _ in range(8):
        admitted = buffer.admit(group, length_bytes=1_000, queue_bytes=0)
        places.append((admitted, group.reserve, group.shared, group.headroom, buffer.pause_due(group)))
    assert places == [
        (True, 1_000, 0, 0, False),
        (True, 2_000, 0, 0, False),
        (True, 2_000, 1_000, 0, False),
        (True, 2_000, 2_000, 0, False),
        (True, 2_000, 3_000, 0, True),  # the threshold is reached
        (True, 2_000, 3_000, 1_000, True),
        (True, 2_000, 3_000, 2_000, True),
        (False, 2_000, 3_000, 2_000, True),
    ]


def test_lossless__departures_free_headroom_first_and_resume_an_offset_below_the_threshold() -> None:
    group = PriorityGroup(replace(LOSSLESS, static_bytes=3_000), reserve_bytes=2_000, headroom_bytes=2_000)
    buffer = buffer_of(group)
    for _ in range(7):
        buffer.admit(group, length_bytes=1_000, queue_bytes=0)
    found = []
    for _ in range(7):
        buffer.release(group, length_bytes=1_000)
        found.append((group.reserve, group.shared, group.headroom, buffer.resume_due(group)))
    assert found == [
        (2_000, 3_000, 1_000, False),
        (2_000, 3_000, 0, False),
        (2_000, 2_000, 0, False),
        (2_000, 1_000, 0, True),
        (2_000, 0, 0, True),
        (1_000, 0, 0, True),
        (0, 0, 0, True),
    ]


@pytest.mark.parametrize(("queues", "alpha"), [(1, 1.0), (4, 1.0), (2, 1 / 8), (8, 1 / 8)])
def test_dynamic_threshold__n_groups_hold_alpha_s_over_1_plus_n_alpha(queues: int, alpha: float) -> None:
    """Choudhury, Hahne: "Dynamic queue length thresholds for shared-memory packet switches", 1998, equation 4."""
    groups = [PriorityGroup(replace(LOSSLESS, alpha=alpha)) for _ in range(queues)]
    buffer = buffer_of(*groups)
    for _ in range(2_000):
        for group in groups:
            buffer.admit(group, length_bytes=1_000, queue_bytes=0)
    expected = alpha * 1_000_000 / (1 + queues * alpha)
    assert all(abs(group.shared - expected) <= 2_000 for group in groups)


def test_lossy__drops_by_the_queue_that_the_packet_joins() -> None:
    group = PriorityGroup(LOSSY, reserve_bytes=5_000, headroom_bytes=5_000)
    buffer = buffer_of(group, total_bytes=10_000)
    assert buffer.shared_bytes == 10_000, "a lossy group has neither reserve nor headroom"
    assert buffer.admit(group, length_bytes=4_000, queue_bytes=0)
    assert buffer.admit(group, length_bytes=1_000, queue_bytes=5_000)
    assert not buffer.admit(group, length_bytes=1_000, queue_bytes=4_001)  # alpha x 5,000 free
    assert not buffer.pause_due(PriorityGroup(LOSSLESS)) or buffer.used_bytes


def test_no_byte_is_lost_or_invented() -> None:
    rng = Random(7)
    groups = [PriorityGroup(LOSSLESS, reserve_bytes=4_096, headroom_bytes=20_000) for _ in range(4)] + [
        PriorityGroup(LOSSY)
    ]
    buffer = buffer_of(*groups, total_bytes=300_000)
    held: list[tuple[PriorityGroup, int]] = []
    for _ in range(20_000):
        if held and rng.random() < 0.48:
            group, length = held.pop(rng.randrange(len(held)))
            buffer.release(group, length_bytes=length)
        else:
            group, length = rng.choice(groups), rng.randrange(64, 9_015)
            if buffer.admit(group, length_bytes=length, queue_bytes=groups[4].shared):
                held.append((group, length))
        assert buffer.used_bytes == sum(each.shared for each in groups) <= buffer.shared_bytes
        for each in groups:
            assert 0 <= each.reserve <= each.reserve_limit
            assert 0 <= each.headroom <= each.headroom_limit
            assert each.shared >= 0
            assert each.held_bytes == sum(length for owner, length in held if owner is each)


def test_a_buffer_that_headroom_fills_is_refused() -> None:
    with pytest.raises(ValueError, match="24000 bytes of reserve and headroom do not fit into a buffer of 20000"):
        buffer_of(
            *(PriorityGroup(LOSSLESS, reserve_bytes=2_000, headroom_bytes=10_000) for _ in range(2)), total_bytes=20_000
        )


@pytest.mark.parametrize(
    ("queue_bytes", "probability"),
    [(0, 0.0), (5_000, 0.0), (102_500, 0.005), (200_000, 0.01), (200_001, 1.0)],
)
def test_red__is_the_papers(queue_bytes: int, probability: float) -> None:
    assert RedProfile(5_000, 200_000, 0.01).probability(queue_bytes) == pytest.approx(probability)


@pytest.mark.parametrize(
    ("gbps", "delay_us", "frame", "expected"),
    [
        (100, 0.2, 9_216, 5_000 + 18_432 + 394 * 64),  # 40 m; SONiC's formula with its frames gives about 40 kB, too
        (40, 1.0, 1_500, 10_000 + 3_000 + 118 * 64),
        (400, 1.0, 9_014, 100_000 + 18_028 + 905 * 64),
    ],
)
def test_headroom(gbps: int, delay_us: float, frame: int, expected: int) -> None:
    assert headroom_bytes(rate_bps=gbps * 10**9, delay_us=delay_us, frame_bytes=frame) == expected


def test_longest_pause__is_65535_quanta_of_512_bit_times() -> None:
    assert longest_pause_ns(100_000_000_000) == 335_539
    assert longest_pause_ns(40_000_000_000) == 838_848
