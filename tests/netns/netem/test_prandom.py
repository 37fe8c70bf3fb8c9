from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from hypothesis import example, given
from hypothesis import strategies as st

from netns.netem.prandom import BLOCK, U32_MAX, U64_MAX, draws


def plainly_stepped(seed: int) -> Iterator[int]:
    """Yield the draws as lib/random32.c makes them, written out component by component, one step at a time."""
    folded = ((seed >> 32) ^ (seed << 10) ^ seed) & U32_MAX
    s1, s2, s3, s4 = (folded + least if folded < least else folded for least in (2, 8, 16, 128))
    while True:
        s1 = (((s1 & 4294967294) << 18) & U32_MAX) ^ ((((s1 << 6) & U32_MAX) ^ s1) >> 13)
        s2 = (((s2 & 4294967288) << 2) & U32_MAX) ^ ((((s2 << 2) & U32_MAX) ^ s2) >> 27)
        s3 = (((s3 & 4294967280) << 7) & U32_MAX) ^ ((((s3 << 13) & U32_MAX) ^ s3) >> 21)
        s4 = (((s4 & 4294967168) << 13) & U32_MAX) ^ ((((s4 << 3) & U32_MAX) ^ s4) >> 12)
        yield s1 ^ s2 ^ s3 ^ s4


def test_draws__public_vector() -> None:
    """The vector of netem's patch: with seed 42424242 and 10 % loss, these three of 25 packets drop."""
    threshold = round(0.1 * U32_MAX)
    dropped = [number for number, draw in enumerate(islice(draws(42424242), 25), start=1) if threshold >= draw]
    assert dropped == [5, 12, 24]


@example(0)  # a seed of zero does not stick there
@given(st.integers(0, U64_MAX))
def test_draws__jumping_by_blocks_is_stepping(seed: int) -> None:
    count = 2 * BLOCK + 3
    assert list(islice(draws(seed), count)) == list(islice(plainly_stepped(seed), count))
