"""scripts.benches.chaos.target: what is allowed, and that everything else shows."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from scripts.benches.chaos.target import GUARD_BYTES, READABLE_FROM, SPARE_BYTES, Bytes, Keys

DATA = np.arange(1, 201, dtype=np.uint8)
SIZE = 1000


@pytest.fixture
def keys() -> Keys:
    return Keys(size_bytes=SIZE, readable_bytes=100_000, dice=Random(1))


def write(keys: Keys, data: Bytes, *, offset: int) -> None:
    place = keys.remote_writable(keys.current.key, offset=offset, length=len(data))
    assert place is not None
    keys.put(place, data)


def faults(keys: Keys) -> list[str]:
    return [fault for target in keys.targets for fault in target.faults()]


def test_arrived__what_was_written_where_it_was_expected(keys: Keys) -> None:
    keys.current.expect(7, place=300, data=DATA)
    assert not keys.current.arrived(7)
    write(keys, DATA, offset=300)
    assert keys.current.arrived(7)
    assert not keys.current.arrived(7), "it is taken"
    assert faults(keys) == []


def test_faults__a_part_is_none(keys: Keys) -> None:
    keys.current.expect(7, place=300, data=DATA)
    assert faults(keys) == []
    write(keys, DATA[:50], offset=300)
    assert faults(keys) == []
    write(keys, DATA[:50], offset=301)
    assert faults(keys) == ["memory of message 7 has wrong bytes"]


def test_faults__late_copies(keys: Keys) -> None:
    keys.current.expect(7, place=300, data=DATA)
    write(keys, DATA, offset=300)
    assert keys.current.arrived(7)
    write(keys, DATA[20:21], offset=320)
    assert faults(keys) == ["memory of message 7 was written after it had arrived"]


@pytest.mark.parametrize("at", [-GUARD_BYTES, -1, 299, 500, SIZE + SPARE_BYTES, SIZE + SPARE_BYTES + GUARD_BYTES - 1])
def test_faults__one_byte_where_nothing_belongs(keys: Keys, at: int) -> None:
    keys.current.expect(7, place=300, data=DATA)
    keys.put(GUARD_BYTES + at, DATA[:1])
    assert faults(keys) == [f"1 bytes were written that are no message's, from {at} of {SIZE + SPARE_BYTES}"]


def test_faults__what_reaches_beyond_the_end_may_fill_the_spare(keys: Keys) -> None:
    write(keys, DATA, offset=keys.current.size_bytes - len(DATA))
    assert faults(keys) == []


def test_renew__the_old_key_opens_nothing_and_the_old_memory_must_not_change(keys: Keys) -> None:
    old = keys.current
    old.expect(7, place=0, data=DATA)
    place = keys.remote_writable(old.key, offset=0, length=200)
    assert place is not None
    keys.put(place, DATA[:100])
    keys.renew()
    assert keys.remote_writable(old.key, offset=0, length=1) is None
    assert keys.local_writable(old.key, offset=0, length=1) is None
    assert keys.remote_readable(old.read_key, offset=0, length=1) is None
    assert faults(keys) == []
    assert not old.arrived(7)
    keys.put(place, DATA)
    assert faults(keys) == ["memory was written after its key was withdrawn"]
    assert not keys.current.memory.any()


@pytest.mark.parametrize(
    ("offset", "length", "allowed"),
    [(0, 0, True), (0, SIZE, True), (-1, 1, False), (SIZE + SPARE_BYTES, 0, True), (SIZE + SPARE_BYTES, 1, False)],
)
def test_remote_writable__within_bounds(keys: Keys, offset: int, length: int, *, allowed: bool) -> None:
    for writable in (keys.remote_writable, keys.local_writable):
        assert (writable(keys.current.key, offset=offset, length=length) is not None) == allowed
        assert writable(keys.current.key ^ 1, offset=offset, length=length) is None
        assert writable(keys.current.read_key, offset=offset, length=length) is None


def test_remote_readable__within_bounds(keys: Keys) -> None:
    key, size = keys.current.read_key, 100_000 - 2 * READABLE_FROM
    assert keys.readable_bytes == size
    assert keys.remote_readable(key, offset=5, length=size - 5) == READABLE_FROM + 5
    assert keys.remote_readable(key, offset=6, length=size - 5) is None
    assert keys.remote_readable(key, offset=-1, length=5) is None
    assert keys.remote_readable(keys.current.key, offset=0, length=5) is None
