"""netns.backends.kernel.netem_options: a shape as netem's attributes, byte by byte. Against the kernel:
test_kernel.py."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netns.backends.kernel.netem_options import (
    CORR,
    CORRUPT,
    DELAY_DIST,
    ECN,
    JITTER64,
    LATENCY64,
    LOSS,
    LOSS_GE,
    LOSS_GI,
    PRNG_SEED,
    RATE,
    RATE64,
    REORDER,
    SLOT,
    SLOT_DIST,
    attribute,
    attributes_untrusted,
    encode,
    keeps_table,
    options_untrusted,
    unsupported,
)
from netns.errors import BackendError
from netns.netem.params import FourStates, GilbertElliott, Slot
from netns.netem.shape import Shape

FULL = 2**32 - 1


def options(shape: Shape, *, seed: int | None = None) -> dict[int, bytes]:
    return options_untrusted(encode(shape, seed=seed))


def test_encode__the_old_struct_has_ticks_of_64_ns() -> None:
    shape = Shape(delay_us=500, jitter_us=64, loss_percent=50, duplicate_percent=100, limit_packets=9, gap=5)
    assert struct.unpack("=6I", options(shape)[0]) == (7812, 9, 2**31, 5, FULL, 1000)


def test_encode__defaults_are_sent_too() -> None:
    """A change that leaves an attribute out would keep what was there."""
    found = options(Shape())
    assert set(found) == {0, LATENCY64, JITTER64, CORR, REORDER, CORRUPT, RATE, ECN, SLOT}
    assert struct.unpack("=6I", found.pop(0)) == (0, 1000, 0, 0, 0, 0)
    assert not any(map(any, found.values()))


def test_encode__each_attribute() -> None:
    shape = Shape(
        delay_us=1.5, jitter_us=0.5, delay_correlation_percent=100, loss_correlation_percent=50, reorder_percent=100,
        reorder_correlation_percent=50, corrupt_percent=50, corrupt_correlation_percent=100, rate_bps=8000,
        rate_overhead_bytes=-1, cell_bytes=48, cell_overhead_bytes=5, ecn=True, loss_percent=1, seed=7,
    )  # fmt: skip
    found = options(shape, seed=9)
    assert struct.unpack("=q", found[LATENCY64]) == (1500,)
    assert struct.unpack("=q", found[JITTER64]) == (500,)
    assert struct.unpack("=3I", found[CORR]) == (FULL, 2**31, 0)
    assert struct.unpack("=2I", found[REORDER]) == (FULL, 2**31)
    assert struct.unpack("=2I", found[CORRUPT]) == (2**31, FULL)
    assert struct.unpack("=IiIi", found[RATE]) == (1000, -1, 48, 5)
    assert struct.unpack("=I", found[ECN]) == (1,)
    assert struct.unpack("=Q", found[PRNG_SEED]) == (7,), "the shape's own comes first"
    assert struct.unpack("=Q", options(Shape(), seed=9)[PRNG_SEED]) == (9,)


def test_encode__rates_beyond_32_bits() -> None:
    found = options(Shape(rate_bps=100_000_000_000))
    assert struct.unpack_from("=I", found[RATE]) == (FULL,)
    assert struct.unpack("=Q", found[RATE64]) == (12_500_000_000,)


def test_encode__models_of_loss() -> None:
    ((kind, content),) = attributes_untrusted(options(Shape(loss_model=GilbertElliott(100, 50, 100, 100)))[LOSS])
    assert (kind, struct.unpack("=4I", content)) == (LOSS_GE, (FULL, 2**31, 0, FULL)), "h, not 1-h"
    ((kind, content),) = attributes_untrusted(options(Shape(loss_model=FourStates(100, 50, 0, 100)))[LOSS])
    assert (kind, struct.unpack("=5I", content)) == (LOSS_GI, (FULL, 2**31, 0, 0, FULL)), "p13 p31 p32 p14 p23"


def test_encode__tables_and_slots() -> None:
    shape = Shape(
        jitter_us=5, distribution="pareto", slot=Slot(distribution="normal", delay_us=2, jitter_us=1, packets=3)
    )
    found = options(shape)
    assert len(found[DELAY_DIST]) == len(found[SLOT_DIST]) == 8192
    assert struct.unpack("=2q2i2q", found[SLOT]) == (0, 0, 3, 0, 2000, 1000)
    bounds = options(Shape(slot=Slot(min_us=1, max_us=2, bytes=9)))[SLOT]
    assert struct.unpack("=2q2i2q", bounds) == (1000, 2000, 0, 9, 0, 0)


def test_unsupported__options_that_an_older_kernel_ignored() -> None:
    wanted = encode(Shape(delay_us=5, seed=7, slot=Slot(max_us=1)), seed=None)
    assert unsupported(wanted, wanted) == []
    old = encode(Shape(delay_us=5), seed=None)
    assert unsupported(wanted, old) == ["slot", "seed (Linux 6.6 has it)"]
    assert unsupported(encode(Shape(), seed=None), old[:24]) == [], "what was not asked for is not missed"


def test_keeps_table() -> None:
    plain, normal = Shape(jitter_us=1), Shape(jitter_us=1, distribution="normal")
    slots = Shape(slot=Slot(distribution="normal", jitter_us=1))
    assert keeps_table(normal, plain)
    assert keeps_table(slots, plain)
    assert keeps_table(slots, Shape(slot=Slot(max_us=1)))
    assert not keeps_table(plain, normal)
    assert not keeps_table(normal, normal)


@given(st.lists(st.tuples(st.integers(1, 100), st.binary(max_size=9))))
def test_attributes__round_trip(attributes: list[tuple[int, bytes]]) -> None:
    joined = b"".join(attribute(kind, content) for kind, content in attributes)
    assert list(attributes_untrusted(joined)) == attributes


@given(st.binary(max_size=64))
def test_attributes_untrusted__any_bytes_bad_flow(content: bytes) -> None:
    try:
        found = dict(attributes_untrusted(content))
    except BackendError:
        return
    assert sum(map(len, found.values())) <= len(content)


def test_options_untrusted__too_short_bad_flow() -> None:
    with pytest.raises(BackendError, match="has 3 bytes of options; netem's are at least 24"):
        options_untrusted(b"abc")
