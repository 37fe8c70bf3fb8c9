"""netns.netem.queue: all that is not delay, loss, rate and limit; the order of netem_enqueue(), draw by draw."""

from __future__ import annotations

from itertools import accumulate
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netns.errors import ShapeError
from netns.netem.distributions import scaled, table
from netns.netem.loss_models import threshold
from netns.netem.packet_ops import Draw
from netns.netem.params import FourStates, GilbertElliott, Slot
from netns.netem.prandom import draws
from netns.netem.queue import Netem
from netns.netem.shape import Shape

LENGTH = 1514

# Gaps in ns between the packets that arrive, and their lengths.
arrivals = st.lists(st.tuples(st.integers(0, 200_000), st.integers(60, 9014)), max_size=80)


class Tags:
    """Packets as strings, so that a test sees what was done to them: "5'" is a copy, "5!" corrupted, "5^" marked."""

    def length_bytes(self, packet: str) -> int:
        return LENGTH + 0 * len(packet)

    def copied(self, packet: str) -> str:
        return packet + "'"

    def corrupted(self, packet: str, *, draw: Draw) -> str:  # noqa: ARG002
        return packet + "!"

    def marked(self, packet: str) -> str | None:
        return None if packet.endswith("x") else packet + "^"


def tagged(shape: Shape, *, seed: int = 1) -> Netem[str]:
    print(f"seed {seed}")
    return Netem(shape, seed=seed, ops=Tags())


def left(netem: Netem[str]) -> list[tuple[int, str]]:
    """All that leaves, at the very time."""
    found = []
    while (at := netem.next_at_ns) is not None:
        while (due := netem.dequeue(at)) is not None:
            found.append(due)
    return found


def test_draws__in_the_kernels_order() -> None:
    """Duplicate, loss, corrupt, the copy's own loss and corrupt, reorder, delay: each takes a draw only if it must."""
    shape = Shape(
        delay_us=100, jitter_us=50, loss_percent=20, duplicate_percent=30, corrupt_percent=10, reorder_percent=25,
        gap=3, limit_packets=10_000,
    )  # fmt: skip
    source, netem = draws(99), tagged(shape, seed=99)
    dup, lose, damage, ahead = (threshold(percent) for percent in (30, 20, 10, 25))
    since = 0
    expected: dict[str, int] = {}

    def place(name: str) -> None:
        nonlocal since
        if since >= 2 and ahead >= next(source):
            since = 0
            expected[name] = 0
        else:
            since += 1
            expected[name] = 100_000 + next(source) % 100_000 - 50_000

    for number in range(500):
        copies = 2 if dup >= next(source) else 1
        copies -= lose >= next(source)
        if not copies:
            continue
        name = f"{number}{'!' if damage >= next(source) else ''}"
        if copies == 2 and lose < next(source):
            place(f"{number}'{'!' if damage >= next(source) else ''}")
        place(name)
    for number in range(500):
        netem.enqueue(0, packet=str(number), length_bytes=LENGTH)
    found = {name: at for at, name in left(netem)}
    assert found == expected
    assert netem.reordered == sum(at == 0 for at in expected.values())
    assert netem.corrupted == sum("!" in name for name in expected)
    assert netem.delayed == len(expected)


def test_duplicate__a_copy_leaves_first_and_is_clean() -> None:
    netem = tagged(Shape(duplicate_percent=100, corrupt_percent=100, delay_us=1))
    assert netem.enqueue(0, packet="a", length_bytes=LENGTH) == 1000
    assert left(netem) == [(1000, "a'!"), (1000, "a!")], "the copy was made before, and then drew for itself"
    assert (netem.duplicated, netem.corrupted, netem.delayed) == (1, 2, 2)


def test_duplicate__lost_once_is_delivered_once() -> None:
    netem = tagged(Shape(duplicate_percent=100, loss_percent=100))
    assert netem.enqueue(0, packet="a", length_bytes=LENGTH) == 0
    assert left(netem) == [(0, "a")]
    assert (netem.dropped, netem.duplicated) == (0, 0)


def test_duplicate__takes_two_places() -> None:
    netem = tagged(Shape(duplicate_percent=100, limit_packets=3, delay_us=1))
    assert [netem.enqueue(0, packet=name, length_bytes=LENGTH) for name in "abc"] == [1000, 1000, None]
    assert len(netem) == 4, "netem looks at its limit before it makes the copy"
    assert netem.overlimit == 1


def test_ecn__marks_ect_packets_and_drops_others() -> None:
    netem = tagged(Shape(loss_percent=100, ecn=True))
    assert netem.enqueue(0, packet="a", length_bytes=LENGTH) == 0
    assert netem.enqueue(0, packet="x", length_bytes=LENGTH) is None
    assert left(netem) == [(0, "a^")]
    assert (netem.ecn_marked, netem.dropped) == (1, 1)


def test_reorder__is_served_first_also_after_a_change_of_shape() -> None:
    netem = tagged(Shape(delay_us=10, gap=1))
    netem.enqueue(0, packet="ahead", length_bytes=LENGTH)
    netem.reshape(Shape(delay_us=1))
    netem.enqueue(0, packet="plain", length_bytes=LENGTH)
    assert len(netem) == 2
    assert netem.dequeue(-1) is None
    assert left(netem) == [(0, "ahead"), (1000, "plain")]


def test_loss_model__is_used_and_counted() -> None:
    netem = tagged(Shape(loss_model=GilbertElliott(100, 0)))
    fates = [netem.enqueue(0, packet="a", length_bytes=LENGTH) for _ in range(3)]
    assert fates == [0, None, None], "the loss is drawn for the state that is left"
    assert netem.dropped == 2


@pytest.mark.parametrize(
    ("shape", "length", "wire_bytes"),
    [
        (Shape(rate_bps=8_000_000, rate_overhead_bytes=20), 100, 120),
        (Shape(rate_bps=8_000_000, rate_overhead_bytes=-20), 100, 80),
        (Shape(rate_bps=8_000_000, rate_overhead_bytes=-200), 100, 0),
        (Shape(rate_bps=8_000_000, cell_bytes=48, cell_overhead_bytes=5), 96, 106),
        (Shape(rate_bps=8_000_000, cell_bytes=48, cell_overhead_bytes=5), 97, 159),
        (Shape(rate_bps=8_000_000, cell_bytes=48, cell_overhead_bytes=5, rate_overhead_bytes=8), 96, 159),
    ],
)
def test_rate__overhead_and_cells(shape: Shape, length: int, wire_bytes: int) -> None:
    """packet_time_ns(): overhead first, then whole cells, each with its own."""
    assert tagged(shape).enqueue(0, packet="a", length_bytes=length) == wire_bytes * 1000


def test_distribution__entries_by_the_draw() -> None:
    source, entries = draws(4), table("normal")
    assert entries is not None
    netem = tagged(Shape(delay_us=1000, jitter_us=100, distribution="normal", limit_packets=1000), seed=4)
    for _ in range(100):
        expected = 1_000_000 + scaled(entries[next(source) % 4096], jitter_ns=100_000)
        assert netem.enqueue(0, packet="a", length_bytes=LENGTH) == expected


def test_trace__packets_leave_by_opportunities(tmp_path: Path) -> None:
    (tmp_path / "up").write_text("1\n5\n")
    netem = tagged(Shape(delay_us=10_000, trace=str(tmp_path / "up")))
    for name in "abc":
        netem.enqueue(0, packet=name, length_bytes=1514)
    assert netem.wait_ns(0) == 6_000_000
    assert left(netem) == [(11_000_000, "a"), (15_000_000, "b"), (16_000_000, "c")]


def test_slot__packets_wait_for_it_and_leave_together() -> None:
    netem = tagged(Shape(slot=Slot(min_us=1000, max_us=1000, packets=2)))
    for now in (10, 20, 30):
        netem.enqueue(now, packet=str(now), length_bytes=LENGTH)
    assert netem.next_at_ns == 1_000_010, "the first look began a slot"
    assert left(netem) == [(1_000_010, "10"), (1_000_010, "20"), (2_000_010, "30")]


def test_slot__a_packet_due_later_than_the_slot_waits_for_the_next() -> None:
    netem = tagged(Shape(delay_us=1500, slot=Slot(min_us=1000, max_us=1000)))
    netem.enqueue(0, packet="a", length_bytes=LENGTH)
    # Checked when it arrives (slot at 1 ms), and when it is due at 1.5 ms, later than that: the next is at 2.5 ms.
    assert netem.next_at_ns == 1_500_000
    assert netem.dequeue(1_499_999) is None
    assert netem.dequeue(1_500_000) is None
    assert left(netem) == [(2_500_000, "a")]


def test_slot__bytes_fill_it_and_reordered_packets_pass_by() -> None:
    netem = tagged(Shape(delay_us=1, gap=3, slot=Slot(min_us=100, max_us=100, bytes=LENGTH + 1)))
    for name in "abcde":
        netem.enqueue(0, packet=name, length_bytes=LENGTH)
    assert left(netem)[0] == (0, "c")
    assert netem.counters() == {
        "delayed": 5, "dropped": 0, "overlimit": 0, "duplicated": 0, "corrupted": 0, "reordered": 1, "ecn_marked": 0,
    }  # fmt: skip


def test_reshape__a_missing_file_changes_nothing_bad_flow() -> None:
    netem = tagged(Shape(delay_us=5))
    with pytest.raises(ShapeError, match="No such file"):
        netem.reshape(Shape(trace="/no/such"))
    with pytest.raises(ShapeError, match="No such file"):
        netem.reshape(Shape(jitter_us=1, distribution="/no/such"))
    assert netem.shape == Shape(delay_us=5)
    assert netem.enqueue(0, packet="a", length_bytes=LENGTH) == 5000


EVERYTHING = st.builds(
    Shape,
    delay_us=st.floats(1, 1000),
    jitter_us=st.floats(0.1, 1000),
    distribution=st.sampled_from(["uniform", "normal", "pareto", "paretonormal"]),
    delay_correlation_percent=st.sampled_from([0, 25]),
    loss_model=st.none() | st.just(GilbertElliott(10, 50)) | st.just(FourStates(10, 50, 10, 40, 5)),
    duplicate_percent=st.sampled_from([0, 30]),
    corrupt_percent=st.sampled_from([0, 30]),
    reorder_percent=st.sampled_from([0, 30]),
    gap=st.integers(0, 4),
    rate_bps=st.just(0) | st.integers(10**5, 10**10),
    limit_packets=st.integers(1, 40),
    slot=st.none() | st.just(Slot(min_us=100, max_us=900, packets=3)),
)


@given(EVERYTHING, arrivals, st.integers(0, 2**64 - 1))
def test_everything_at_once__conserves_packets_and_repeats(
    shape: Shape, packets: list[tuple[int, int]], seed: int
) -> None:
    """A packet is dropped or leaves once (twice if duplicated), after its arrival; a seed repeats it."""
    runs = [run_tagged(shape, packets, seed=seed) for _ in range(2)]
    assert runs[0] == runs[1]
    departures, counters = runs[0]
    # A copy that is lost or over the limit counts as such, and as duplicated.
    assert len(departures) == counters["delayed"]
    assert counters["delayed"] + counters["dropped"] + counters["overlimit"] == len(packets) + counters["duplicated"]
    came = dict(zip(range(len(packets)), accumulate(gap for gap, _ in packets), strict=True))
    for at, name in departures:
        assert at >= came[int(name.rstrip("'!^"))]
    assert [at for at, _ in departures] == sorted(at for at, _ in departures)


def run_tagged(
    shape: Shape, packets: list[tuple[int, int]], *, seed: int
) -> tuple[list[tuple[int, str]], dict[str, int]]:
    netem: Netem[str] = Netem(shape, seed=seed, ops=Tags())
    now, found = 0, []
    for number, (gap, length) in enumerate(packets):
        now += gap
        while (at := netem.next_at_ns) is not None and at <= now:
            while (due := netem.dequeue(at)) is not None:
                found.append(due)
        netem.enqueue(now, packet=str(number), length_bytes=length)
    return found + left(netem), netem.counters()
