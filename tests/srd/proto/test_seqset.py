"""Integers as sets, against Python's own sets."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from srd.proto.seqset import SequenceSet, mask, ranges, trailing_ones

INSERTS = st.lists(st.tuples(st.integers(0, 300), st.integers(0, 70)), max_size=40)


def members(bits: int) -> set[int]:
    return {index for index in range(bits.bit_length()) if bits >> index & 1}


@given(INSERTS)
def test_insert__is_a_set(inserts: list[tuple[int, int]]) -> None:
    ours, model = SequenceSet(), set[int]()
    for first, count in inserts:
        wanted = set(range(first, first + count))
        new = ours.insert(first, count=count)
        assert {first + index for index in members(new)} == wanted - model
        model |= wanted
        lowest_missing = next(number for number in range(10**6) if number not in model)
        assert ours.base == lowest_missing
        assert {ours.base + index for index in members(ours.bits)} == {n for n in model if n > lowest_missing}
        assert not ours.bits & 1
    for number in range(400):
        assert (number in ours) == (number in model)


def test_insert__far_beyond_32_bits() -> None:
    ours = SequenceSet()
    ours.base = 1 << 40
    assert ours.insert((1 << 40) - 3, count=5) == 0b11000
    assert (ours.base, ours.bits) == ((1 << 40) + 2, 0)


@given(st.integers(0, 200))
def test_mask__has_so_many_ones(count: int) -> None:
    assert members(mask(count)) == set(range(count))


@given(st.integers(0, 2**200))
def test_trailing_ones__against_the_string(bits: int) -> None:
    text = f"0{bits:b}"
    assert trailing_ones(bits) == len(text) - len(text.rstrip("1"))


@given(st.integers(0, 2**200))
def test_ranges__are_maximal_ascending_and_complete(bits: int) -> None:
    found = list(ranges(bits))
    assert {index for first, count in found for index in range(first, first + count)} == members(bits)
    assert all(count > 0 for _, count in found)
    for (first, count), (following, _) in pairwise(found):
        assert first + count < following  # a zero lies between
