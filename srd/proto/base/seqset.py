"""Sets of sequence numbers as one Python integer: bit i stands for `base + i`.

For windows of a thousand packets this is the fastest representation in Python, faster than NumPy arrays.
"""

from __future__ import annotations

from collections.abc import Iterator


def mask(count: int) -> int:
    """Return `count` ones."""
    return (1 << count) - 1


def trailing_ones(bits: int) -> int:
    """Count the ones below the lowest zero of `bits`."""
    return (~bits & (bits + 1)).bit_length() - 1


def ranges(bits: int) -> Iterator[tuple[int, int]]:
    """Yield (first, count) of every maximal range of ones, lowest first."""
    at = 0
    while bits:
        zeros = (bits & -bits).bit_length() - 1
        bits >>= zeros
        ones = trailing_ones(bits)
        yield at + zeros, ones
        bits >>= ones
        at += zeros + ones


class SequenceSet:
    """Everything below `base`, and the members of `bits` from there on (bit 0 is clear: it would move the base)."""

    __slots__ = ("base", "bits")

    def __init__(self) -> None:
        self.base = 0
        self.bits = 0

    def insert(self, first: int, *, count: int) -> int:
        """Add `count` numbers from `first`; return those that are new, as bits relative to `first`."""
        shift = first - self.base
        if shift == 0 and not self.bits:  # in order, the common case on an idle network
            self.base += count
            return mask(count)
        below = min(max(-shift, 0), count)  # numbers of the range below the base, which are members already
        shift = max(shift, 0)
        added = mask(count - below) << shift
        new = added & ~self.bits
        self.bits |= added
        if self.bits & 1:
            advance = trailing_ones(self.bits)
            self.base += advance
            self.bits >>= advance
        return (new >> shift) << below

    def covers(self, first: int, *, count: int) -> bool:
        """Whether all of `count` numbers from `first` are members."""
        start = max(first - self.base, 0)
        wanted = mask(max(first + count - self.base - start, 0))
        return self.bits >> start & wanted == wanted

    def missing(self, first: int, *, count: int) -> int:
        """Return which of `count` numbers from `first` are no members, as bits relative to `first`."""
        shift = first - self.base
        below = min(max(-shift, 0), count)
        return (mask(count - below) & ~(self.bits >> max(shift, 0))) << below

    def __contains__(self, number: int) -> bool:
        return number < self.base or bool(self.bits >> (number - self.base) & 1)
