"""Integers as sets, against Python's own sets."""

from __future__ import annotations

from itertools import count as count_from
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from srd.proto.base.seqset import SequenceSet, mask, ranges, trailing_ones


def members(bits: int) -> set[int]:
    return {index for index in range(bits.bit_length()) if bits >> index & 1}


FIRST, COUNT = st.integers(0, 300), st.integers(0, 70)


class SetMachine(RuleBasedStateMachine):
    """Insert and query in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.ours = SequenceSet()
        self.model: set[int] = set()

    @rule(first=FIRST, count=COUNT)
    def insert(self, first: int, count: int) -> None:
        wanted = set(range(first, first + count))
        new = self.ours.insert(first, count=count)
        assert {first + index for index in members(new)} == wanted - self.model
        self.model |= wanted

    @rule(count=COUNT)
    def insert_in_order(self, count: int) -> None:
        self.insert(self.ours.base, count)

    @rule(first=FIRST, count=COUNT)
    def covers(self, first: int, count: int) -> None:
        assert self.ours.covers(first, count=count) == (set(range(first, first + count)) <= self.model)

    @rule(first=FIRST, count=COUNT)
    def missing(self, first: int, count: int) -> None:
        missing = self.ours.missing(first, count=count)
        assert {first + index for index in members(missing)} == set(range(first, first + count)) - self.model

    @rule(number=st.integers(0, 10_000))
    def contains(self, number: int) -> None:
        assert (number in self.ours) == (number in self.model)

    @invariant()
    def the_same(self) -> None:
        lowest_missing = next(number for number in count_from(0) if number not in self.model)
        assert self.ours.base == lowest_missing
        assert {self.ours.base + index for index in members(self.ours.bits)} == {
            number for number in self.model if number > lowest_missing
        }
        assert not self.ours.bits & 1


TestSequenceSet = SetMachine.TestCase
TestSequenceSet.settings = settings(max_examples=60, stateful_step_count=30)


def test_insert__far_beyond_32_bits() -> None:
    ours = SequenceSet()
    ours.base = 1 << 40
    assert ours.insert((1 << 40) - 3, count=5) == 0b11000
    assert (ours.base, ours.bits) == ((1 << 40) + 2, 0)


@given(st.integers(0, 200))
def test_mask__has_count_ones(count: int) -> None:
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
