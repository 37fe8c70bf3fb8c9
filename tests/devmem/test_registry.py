"""Registrations: rights, bounds, keys, and the region that they keep."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devmem.errors import RegionError, RegistrationError
from devmem.region import Region
from devmem.registry import Access, Registration, Registry

ALL = Access.LOCAL_WRITE | Access.REMOTE_WRITE | Access.REMOTE_READ
SIZE = 8192
REGION = Region(SIZE)


def answers(registry: Registry, key: int, *, offset: int, length: int) -> list[int | None]:
    ask = (registry.local_writable, registry.remote_writable, registry.remote_readable)
    return [question(key, offset=offset, length=length) for question in ask]


@pytest.mark.parametrize(
    "access",
    [Access(0), Access.LOCAL_WRITE, Access.REMOTE_READ, Access.LOCAL_WRITE | Access.REMOTE_WRITE, ALL],
)
def test_find__only_with_the_right(access: Access) -> None:
    registry = Registry()
    registration = registry.register(REGION, offset=100, length=50, access=access)
    place = REGION.address + 107
    assert answers(registry, registration.key, offset=7, length=43) == [
        place if right in access else None for right in (Access.LOCAL_WRITE, Access.REMOTE_WRITE, Access.REMOTE_READ)
    ]
    registry.close()


@given(offset=st.integers(-3, 103), length=st.integers(-3, 103))
def test_find__only_within_bounds(offset: int, length: int) -> None:
    registry = Registry()
    registration = registry.register(REGION, offset=64, length=100, access=ALL)
    inside = offset >= 0 and length >= 0 and offset + length <= 100
    expected = REGION.address + 64 + offset if inside else None
    assert answers(registry, registration.key, offset=offset, length=length) == [expected] * 3
    registry.close()


@pytest.mark.parametrize("offset", [2**63, 2**64 - 1, 2**64])
def test_find__offsets_that_would_wrap(offset: int) -> None:
    registry = Registry()
    key = registry.register(REGION, offset=0, length=SIZE, access=ALL).key
    assert answers(registry, key, offset=offset, length=1) == [None] * 3
    registry.close()


def test_register__keys_are_all_different_and_64_bits_long() -> None:
    registry = Registry()
    keys = {registry.register(REGION, offset=0, length=1, access=ALL).key for _ in range(2000)}
    assert len(keys) == len(registry) == 2000
    assert 0 not in keys
    assert max(keys) < 1 << 64
    for bit in range(64):  # each bit is set in about half of them
        assert 800 < sum(key >> bit & 1 for key in keys) < 1200, bit
    registry.close()
    assert len(registry) == 0


@pytest.mark.parametrize(("offset", "length"), [(-1, 1), (0, SIZE + 1), (SIZE, 1), (0, -1)])
def test_register__out_of_bounds_bad_flow(offset: int, length: int) -> None:
    registry = Registry()
    with pytest.raises(RegionError, match=f"not within a region of {SIZE}"):
        registry.register(REGION, offset=offset, length=length, access=ALL)
    assert len(registry) == 0


def test_register__remote_write_needs_local_write() -> None:
    with pytest.raises(RegistrationError, match="REMOTE_WRITE needs LOCAL_WRITE too; add it"):
        Registry().register(REGION, offset=0, length=1, access=Access.REMOTE_WRITE)


def test_deregister__the_key_stops_working_at_once() -> None:
    registry, other = Registry(), Registry()
    one = registry.register(REGION, offset=0, length=10, access=ALL)
    two = registry.register(REGION, offset=0, length=10, access=ALL)
    with pytest.raises(RegistrationError, match="not registered here"):
        other.deregister(one)
    registry.deregister(one)
    assert answers(registry, one.key, offset=0, length=1) == [None] * 3
    assert answers(registry, two.key, offset=0, length=1) == [REGION.address] * 3
    with pytest.raises(RegistrationError, match="once is enough"):
        registry.deregister(one)
    registry.close()


def test_registration__keeps_its_region_and_its_secret() -> None:
    registry = Registry()
    with Region(SIZE) as region:
        registration: Registration = registry.register(region, offset=0, length=10, access=ALL)
        assert str(registration.key) not in repr(registration)
        assert f"{registration.key:x}" not in repr(registration)
        with pytest.raises(RegionError, match="live views"):
            region.close()
        registry.deregister(registration)
        registration.release()  # more does nothing


def test_access__numbers_are_those_of_ibv_access_flags() -> None:
    assert [right.value for right in Access] == [1, 2, 4]
