"""netns.netem.mahimahi: mahimahi's traces."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netns.errors import ShapeError
from netns.netem.mahimahi import NS_PER_MS, OPPORTUNITY_BYTES, DeliveryOpportunities, read_trace

FULL = OPPORTUNITY_BYTES + 14
MS = NS_PER_MS


def test_serve__a_full_packet_an_opportunity() -> None:
    link = DeliveryOpportunities((1, 2, 5))
    assert [link.serve(0, length_bytes=FULL) for _ in range(5)] == [1 * MS, 2 * MS, 5 * MS, 6 * MS, 7 * MS]


def test_serve__small_packets_share_one_and_a_large_one_takes_several() -> None:
    link = DeliveryOpportunities((1, 2, 3))
    assert [link.serve(0, length_bytes=500 + 14) for _ in range(4)] == [1 * MS, 1 * MS, 1 * MS, 2 * MS]
    assert link.serve(0, length_bytes=2000 + 14) == 3 * MS, "1000 bytes of the second, 1000 of the third"
    assert link.serve(0, length_bytes=500 + 14) == 3 * MS
    assert link.serve(0, length_bytes=FULL) == 4 * MS


def test_serve__unused_opportunities_are_lost() -> None:
    link = DeliveryOpportunities((1, 2, 3, 10))
    assert link.serve(0, length_bytes=500) == 1 * MS
    assert link.serve(int(3.5 * MS), length_bytes=500) == 10 * MS
    assert link.serve(25 * MS, length_bytes=500) == 30 * MS
    assert link.serve(31 * MS, length_bytes=500) == 31 * MS


def test_serve__starts_with_its_first_packet() -> None:
    link = DeliveryOpportunities((4, 8))
    assert link.serve(1000 * MS, length_bytes=FULL) == 1004 * MS


@given(
    st.lists(st.integers(0, 50), min_size=1, max_size=20).map(sorted).filter(lambda times: times[-1] > 0),
    st.lists(st.tuples(st.integers(0, 30 * MS), st.integers(60, 9014)), max_size=40),
)
def test_serve__never_faster_than_the_trace_and_never_back(times: list[int], packets: list[tuple[int, int]]) -> None:
    link = DeliveryOpportunities(tuple(times))
    ready, last, served = 0, 0, 0
    for gap, length in packets:
        ready += gap
        at = link.serve(max(ready, last), length_bytes=length)
        assert at >= max(ready, last)
        last, served = at, served + length - 14
    rounds = last // MS // times[-1] + 2
    assert served <= rounds * len(times) * OPPORTUNITY_BYTES


def test_read_trace(tmp_path: Path) -> None:
    path = tmp_path / "a.trace"
    path.write_text("0\n0\n7\n")
    assert read_trace(path) == (0, 0, 7)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("1\nx\n", "line 2: 'x' is not a whole number of milliseconds"),
        ("5\n4\n", "line 2: 4 ms comes after 5 ms; sort the file"),
        ("", "its last line must be later than 0 ms, as the trace repeats from there"),
        ("0\n", "its last line must be later than 0 ms, as the trace repeats from there"),
    ],
)
def test_read_trace__bad_flow(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "b.trace"
    path.write_text(content)
    with pytest.raises(ShapeError) as caught:
        read_trace(path)
    assert str(caught.value) == f"trace: {path}: {message}"


def test_read_trace__no_such_file_and_no_text_bad_flow(tmp_path: Path) -> None:
    with pytest.raises(ShapeError, match="No such file or directory; give a file in mahimahi's format"):
        read_trace(tmp_path / "none")
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(ShapeError, match="not text; give a file"):
        read_trace(tmp_path / "binary")
    with (tmp_path / "huge").open("wb") as file:
        file.truncate((64 << 20) + 1)
    with pytest.raises(ShapeError, match="larger than 64 MiB"):
        read_trace(tmp_path / "huge")
