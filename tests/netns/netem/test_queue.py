from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netns.netem.queue import Netem
from netns.netem.shape import Shape

LENGTH = 1514

shapes = st.builds(
    Shape,
    delay_us=st.floats(0, 1000),
    jitter_us=st.floats(0, 1000),
    loss_percent=st.floats(0, 50),
    rate_bps=st.just(0) | st.integers(10**5, 10**10),
    limit_packets=st.integers(1, 40),
)
# Gaps in ns between the packets that arrive, and their lengths.
arrivals = st.lists(st.tuples(st.integers(0, 200_000), st.integers(60, 9014)), max_size=80)


def run(
    netem: Netem[int], packets: list[tuple[int, int]]
) -> tuple[list[tuple[int, int | None]], list[tuple[int, int]]]:
    """Feed packets numbered from 0; return (arrival, expected departure) of each, and the departures (time, number).

    The queue is served exactly when a packet is due.
    """
    now, fates, left = 0, [], []
    for number, (gap, length) in enumerate(packets):
        now += gap
        left += drain(netem, until=now)
        fates.append((now, netem.enqueue(now, packet=number, length_bytes=length)))
    return fates, left + drain(netem, until=None)


def drain(netem: Netem[int], *, until: int | None) -> list[tuple[int, int]]:
    left = []
    while (at := netem.next_at_ns) is not None and (until is None or at <= until):
        due = netem.dequeue(at)
        assert due is not None
        assert due[0] == at
        left.append(due)
    return left


def test_wait_ns__is_the_queue_without_the_delay_line() -> None:
    netem: Netem[int] = Netem(Shape(delay_us=100, rate_bps=8_000_000), seed=1)  # 1 us a byte
    assert netem.wait_ns(0) == 0
    for number in range(3):
        netem.enqueue(0, packet=number, length_bytes=50)
    assert netem.wait_ns(0) == 150_000
    assert netem.wait_ns(140_000) == 10_000
    assert netem.wait_ns(200_000) == 0  # the last one is in the delay line by now
    delayed: Netem[int] = Netem(Shape(delay_us=100), seed=1)
    delayed.enqueue(0, packet=0, length_bytes=50)
    assert delayed.wait_ns(0) == 0


def test_enqueue__rate_counts_whole_bytes_in_integer_nanoseconds() -> None:
    netem: Netem[int] = Netem(Shape(delay_us=500, rate_bps=250_000_000), seed=1)
    # 9,014 B at 31,250,000 B/s are 288,448 ns on the wire.
    assert netem.enqueue(0, packet=0, length_bytes=9014) == 500_000 + 288_448
    assert netem.enqueue(0, packet=1, length_bytes=9014) == 500_000 + 2 * 288_448, "waits for the first"
    assert netem.enqueue(10**9, packet=2, length_bytes=9014) == 10**9 + 788_448, "an idle line starts anew"


def test_enqueue__limit_counts_the_delay_line() -> None:
    netem: Netem[int] = Netem(Shape(delay_us=1, limit_packets=2), seed=1)
    assert [netem.enqueue(0, packet=n, length_bytes=LENGTH) for n in range(3)] == [1000, 1000, None]
    assert (len(netem), netem.overlimit) == (2, 1)
    assert netem.dequeue(1000) == (1000, 0)
    assert netem.enqueue(1000, packet=3, length_bytes=LENGTH) == 2000


def test_dequeue__of_equal_departures_the_first_come_leaves_first() -> None:
    netem: Netem[str] = Netem(Shape(delay_us=2), seed=1)
    netem.enqueue(0, packet="late", length_bytes=LENGTH)
    netem.reshape(Shape(delay_us=1))
    netem.enqueue(0, packet="overtakes 1", length_bytes=LENGTH)
    netem.enqueue(0, packet="overtakes 2", length_bytes=LENGTH)
    netem.enqueue(1000, packet="ties with late", length_bytes=LENGTH)
    assert netem.next_at_ns == 1000
    assert netem.dequeue(999) is None
    order = [netem.dequeue(2000) for _ in range(5)]
    assert order == [(1000, "overtakes 1"), (1000, "overtakes 2"), (2000, "late"), (2000, "ties with late"), None]


def test_reshape__keeps_the_queue_and_the_draws() -> None:
    shape = Shape(delay_us=10, loss_percent=10)
    changed: Netem[int] = Netem(shape, seed=42424242)
    fates = [changed.enqueue(0, packet=n, length_bytes=LENGTH) for n in range(1, 9)]
    changed.reshape(Shape(delay_us=20, loss_percent=10))
    fates += [changed.enqueue(0, packet=n, length_bytes=LENGTH) for n in range(9, 26)]
    assert [n for n, fate in enumerate(fates, start=1) if fate is None] == [5, 12, 24]
    assert {fate for fate in fates[:8] if fate} == {10_000}
    assert {fate for fate in fates[8:] if fate} == {20_000}
    assert changed.shape.delay_us == 20
    assert len(changed) == 22


def test_reshape__a_seed_in_the_shape_starts_the_draws_anew() -> None:
    netem: Netem[int] = Netem(Shape(loss_percent=10), seed=1)
    for _ in range(10):
        netem.enqueue(0, packet=0, length_bytes=LENGTH)
    netem.reshape(Shape(loss_percent=10, seed=42424242))
    fates = [netem.enqueue(0, packet=n, length_bytes=LENGTH) for n in range(25)]
    assert [n for n, fate in enumerate(fates, start=1) if fate is None] == [5, 12, 24]


@given(shapes, arrivals, st.integers(0, 2**64 - 1))
def test_every_packet_is_dropped_or_leaves_once_when_promised(
    shape: Shape, packets: list[tuple[int, int]], seed: int
) -> None:
    netem: Netem[int] = Netem(shape, seed=seed)
    fates, left = run(netem, packets)
    promised = {number: at for number, (_, at) in enumerate(fates) if at is not None}
    assert {number: at for at, number in left} == promised
    assert len(left) == len(promised) == netem.delayed
    assert netem.delayed + netem.dropped + netem.overlimit == len(packets)
    assert [at for at, _ in left] == sorted(at for at, _ in left)
    assert len(netem) == 0


@given(shapes.filter(lambda shape: shape.rate_bps > 0), arrivals, st.integers(0, 2**64 - 1))
def test_with_a_rate_departures_are_spaced_and_in_order(
    shape: Shape, packets: list[tuple[int, int]], seed: int
) -> None:
    """A jitter beyond the delay is left out: on an idle line netem then takes it from the time on the wire."""
    bounded = replace(shape, jitter_us=min(shape.jitter_us, shape.delay_us))
    _, left = run(Netem(bounded, seed=seed), packets)
    assert [number for _, number in left] == sorted(number for _, number in left)
    for (before, _), (after, number) in pairwise(left):
        assert after - before >= packets[number][1] * 10**9 // (shape.rate_bps // 8)


@pytest.mark.parametrize(("percent", "dropped"), [(0, 0), (100, 1000)])
def test_loss_of_0_and_100_percent_is_exact(percent: float, dropped: int) -> None:
    netem: Netem[None] = Netem(Shape(loss_percent=percent, limit_packets=1000), seed=3)
    for _ in range(1000):
        netem.enqueue(0, packet=None, length_bytes=LENGTH)
    assert netem.dropped == dropped
