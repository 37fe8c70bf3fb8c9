"""scripts.benches.chaos.target: allowed accesses, and detection of all others."""

from __future__ import annotations

from functools import partial
from random import Random

import numpy as np
import pytest

from scripts.benches.chaos.target import GUARD_BYTES, READABLE_FROM, SPARE_BYTES, Bytes, CheckedKeys

DATA = np.arange(1, 201, dtype=np.uint8)
SIZE = 1000


@pytest.fixture
def keys() -> CheckedKeys:
    return CheckedKeys(size_bytes=SIZE, readable_bytes=100_000, rng=Random(1))


def write(keys: CheckedKeys, data: Bytes, *, offset: int) -> None:
    address = keys.remote_writable(keys.current.key, peer=0, offset=offset, length=len(data))
    assert address is not None
    keys.put(address, data)


def faults(keys: CheckedKeys) -> list[str]:
    return [fault for target in keys.targets for fault in target.faults()]


def test_arrived__after_the_expected_write(keys: CheckedKeys) -> None:
    keys.current.expect(7, offset=300, data=DATA)
    assert not keys.current.arrived(7)
    write(keys, DATA, offset=300)
    assert keys.current.arrived(7)
    assert not keys.current.arrived(7), "it is consumed"
    assert faults(keys) == []


def test_faults__partial_write(keys: CheckedKeys) -> None:
    keys.current.expect(7, offset=300, data=DATA)
    assert faults(keys) == []
    write(keys, DATA[:50], offset=300)
    assert faults(keys) == []
    write(keys, DATA[:50], offset=301)
    assert faults(keys) == ["memory of message 7 has wrong bytes"]


def test_faults__late_duplicate(keys: CheckedKeys) -> None:
    keys.current.expect(7, offset=300, data=DATA)
    write(keys, DATA, offset=300)
    assert keys.current.arrived(7)
    write(keys, DATA[20:21], offset=320)
    assert faults(keys) == ["memory of message 7 was written after it had arrived"]


@pytest.mark.parametrize("at", [-GUARD_BYTES, -1, 299, 500, SIZE + SPARE_BYTES, SIZE + SPARE_BYTES + GUARD_BYTES - 1])
def test_faults__one_stray_byte(keys: CheckedKeys, at: int) -> None:
    keys.current.expect(7, offset=300, data=DATA)
    keys.put(GUARD_BYTES + at, DATA[:1])
    assert faults(keys) == [f"1 bytes were written outside of all messages, from {at} of {SIZE + SPARE_BYTES}"]


def test_faults__spare_bytes_may_be_written(keys: CheckedKeys) -> None:
    write(keys, DATA, offset=keys.current.size_bytes - len(DATA))
    assert faults(keys) == []


def test_renew__old_key_is_invalid_and_old_memory_must_not_change(keys: CheckedKeys) -> None:
    old = keys.current
    old.expect(7, offset=0, data=DATA)
    address = keys.remote_writable(old.key, peer=0, offset=0, length=200)
    assert address is not None
    keys.put(address, DATA[:100])
    keys.renew()
    assert keys.remote_writable(old.key, peer=0, offset=0, length=1) is None
    assert keys.local_writable(old.key, offset=0, length=1) is None
    assert keys.remote_readable(old.read_key, peer=0, offset=0, length=1) is None
    assert faults(keys) == []
    assert not old.arrived(7)
    keys.put(address, DATA)
    assert faults(keys) == ["memory was written after its key was withdrawn"]
    assert not keys.current.memory.any()


@pytest.mark.parametrize(
    ("offset", "length", "allowed"),
    [(0, 0, True), (0, SIZE, True), (-1, 1, False), (SIZE + SPARE_BYTES, 0, True), (SIZE + SPARE_BYTES, 1, False)],
)
def test_remote_writable__within_bounds(keys: CheckedKeys, offset: int, length: int, *, allowed: bool) -> None:
    for writable in (partial(keys.remote_writable, peer=0), keys.local_writable):
        assert (writable(keys.current.key, offset=offset, length=length) is not None) == allowed
        assert writable(keys.current.key ^ 1, offset=offset, length=length) is None
        assert writable(keys.current.read_key, offset=offset, length=length) is None


def test_remote_readable__within_bounds(keys: CheckedKeys) -> None:
    key, size = keys.current.read_key, 100_000 - 2 * READABLE_FROM
    assert keys.readable_bytes == size
    assert keys.remote_readable(key, peer=0, offset=5, length=size - 5) == READABLE_FROM + 5
    assert keys.remote_readable(key, peer=0, offset=6, length=size - 5) is None
    assert keys.remote_readable(key, peer=0, offset=-1, length=5) is None
    assert keys.remote_readable(keys.current.key, peer=0, offset=0, length=5) is None
